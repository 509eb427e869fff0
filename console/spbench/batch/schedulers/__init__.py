"""Batch systems, a module each: the directives of a job, and how its allocation is seen."""
