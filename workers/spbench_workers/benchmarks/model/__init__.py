"""Models over many ranks: training, inference and layer profiles."""
