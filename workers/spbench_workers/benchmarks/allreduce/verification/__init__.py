"""Verification of a collective: input data, expected results, and their comparison."""
