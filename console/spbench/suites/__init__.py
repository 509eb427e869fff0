"""Suites: from a YAML file to checked cases, every error with its place."""
