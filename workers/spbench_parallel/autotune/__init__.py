"""Choices that a plan leaves open and that are made by measurement: balance, skips, format."""
