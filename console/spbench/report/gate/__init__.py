"""The gate of a baseline: the decision whether a run fails it, and a check of the gate itself."""
