"""Ping-pongs between two ranks, on hosts or GPUs, and the order of pairs."""
