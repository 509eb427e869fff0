"""Checks of a model at full size, of which no rank needs to hold more than its own part."""
