"""Faults of a job: the evidence of ranks and launcher, and its cause."""
