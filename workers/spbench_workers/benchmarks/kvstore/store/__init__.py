"""Stores of gradients: on devices, on parameter servers, or by allreduce."""
