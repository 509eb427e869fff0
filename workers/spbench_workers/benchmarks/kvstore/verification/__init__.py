"""Verification of a store: the expected values, and their comparison with those of every rank."""
