"""Verification of results against their references."""
