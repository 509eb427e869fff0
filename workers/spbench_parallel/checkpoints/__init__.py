"""Checkpoints: a model's training state in a file, in any layout of ranks."""
