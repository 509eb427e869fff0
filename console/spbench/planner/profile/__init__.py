"""Profiles: the times and sizes of a model's layers, and the states to cut it at."""
