"""Checks of a model at full size, in which each rank holds only its own part of the model."""
