"""Torch operators over images that are cut into tiles, one tile per rank."""
