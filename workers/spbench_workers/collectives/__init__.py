"""Collectives over ranks: algorithms of messages between two ranks, and those of libraries."""
