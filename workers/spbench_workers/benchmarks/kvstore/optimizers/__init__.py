"""Optimizers of MXNet's stores with its default numbers, in place and in float32."""
