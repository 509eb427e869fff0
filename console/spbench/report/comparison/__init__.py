"""The comparison of two runs: its result, its notes and its tables."""
