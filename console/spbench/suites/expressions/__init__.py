"""Bounds of expectations that are computed from metrics of cases."""
