"""Halo exchange between the tiles of an image, and convolutions over tiles."""
