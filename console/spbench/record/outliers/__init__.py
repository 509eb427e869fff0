"""Hosts, ranks and links that are out of line with all others of their kind, by a test."""
