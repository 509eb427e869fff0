"""Baselines: results of runs in small files, with which later runs are compared."""
