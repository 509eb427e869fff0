"""Faults of a job: the evidence of ranks and launcher, and the cause that it shows."""
