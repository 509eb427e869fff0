"""Operators over tiles that fetch the box of pixels that their outputs read.

They serve operators without a uniform window: resizing, adaptive pools, padding other than zeros,
transposed convolutions, crops. A rank fetches the box that its outputs read, and computes them with
torch.
"""
