"""The gate of a baseline: whether a run fails it, and a check of the gate."""
