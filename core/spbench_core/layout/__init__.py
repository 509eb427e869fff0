"""Layouts: which rank holds which part of an image, a model and a batch."""
