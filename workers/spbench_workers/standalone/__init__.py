"""Standalone benchmarks: command lines and printed lines."""
