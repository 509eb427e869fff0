"""Torch modules for the layers of the model benchmarks, dense and spatial."""
