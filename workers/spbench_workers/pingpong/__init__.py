"""Ping-pongs between two ranks, in memory of the host or of a GPU, and the order of pairs."""
