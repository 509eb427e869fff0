"""Batch systems, one module each: directives of a job, and its allocation."""
