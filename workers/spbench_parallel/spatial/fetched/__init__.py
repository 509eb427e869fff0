"""Operators over tiles that fetch the pixels that their outputs read, wherever they are.

Where outputs are not a window of stride and padding that is the same for all of them (resized maps,
adaptive pools, other paddings than zeros, transposed convolutions, crops), a rank fetches the box
that its own outputs read, and computes them by torch.
"""
