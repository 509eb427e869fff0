"""Optimizers as MXNet's stores run them, with its default numbers: in place, in float32."""
