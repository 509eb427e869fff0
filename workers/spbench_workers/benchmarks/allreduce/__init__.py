"""Allreduce: algorithms as schedules, their execution, a cost model, and the sweep."""
