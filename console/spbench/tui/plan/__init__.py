"""The Plan page: a profile and a cluster to a plan, its step, its memory, and its run."""
