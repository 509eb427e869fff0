"""Benchmarks: one folder per family with its catalog ``entry.py`` and its code."""
