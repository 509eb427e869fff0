"""Choices that are made by measurement: balance, skips, memory format."""
