"""Checks of a model at full size, by ranks that hold only their own part."""
