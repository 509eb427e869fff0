"""Batch jobs: write a suite as a job script, and collect its results as a run."""
