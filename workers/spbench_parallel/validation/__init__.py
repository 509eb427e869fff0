"""Comparison of training over many ranks with training on one process."""
