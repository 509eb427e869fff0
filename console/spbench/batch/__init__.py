"""Batch jobs: a suite as a job that needs no console, and the run made of what its ranks wrote."""
