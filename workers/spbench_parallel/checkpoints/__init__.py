"""Checkpoints: a model's training state in a file, whatever the layout of ranks."""
