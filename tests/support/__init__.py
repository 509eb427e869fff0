"""Helpers that several test files share, and plugins of pytest."""
