"""Suites: from a YAML file to checked cases, with the position of every error."""
