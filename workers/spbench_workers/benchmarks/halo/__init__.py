"""The halo benchmarks: halo exchange between the tiles of an image, and convolutions over tiles."""
