"""Baselines: what a run measured, kept in a small file that later runs are held against."""
