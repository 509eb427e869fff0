"""Modules of torch for the layers of the model benchmarks."""
