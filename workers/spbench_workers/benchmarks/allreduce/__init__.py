"""Sweep of collectives over sizes, with verification and a cost model."""
