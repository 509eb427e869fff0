"""Checkpoints: what a model has learnt, kept in a file whatever the layout."""
