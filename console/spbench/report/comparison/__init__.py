"""The comparison of two runs, or of a run with a baseline: its result, its notes and its tables."""
