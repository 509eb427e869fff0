"""Collectives by spbench's algorithms, and those of libraries."""
