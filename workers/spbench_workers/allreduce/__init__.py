"""Allreduce: algorithms as schedules, who runs them, what they should cost, and the sweep."""
