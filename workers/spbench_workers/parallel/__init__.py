"""Models over many ranks: stages, tiles, replicas, and the order of their work."""
