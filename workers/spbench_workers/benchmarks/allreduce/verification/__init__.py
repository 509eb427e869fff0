"""Verification of a collective: input data, expected results, and comparison."""
