"""Standalone benchmarks: command lines of spbench and of reference scripts, and their output."""
