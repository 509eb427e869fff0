"""Verification of a store: expected values and their comparison on every rank."""
