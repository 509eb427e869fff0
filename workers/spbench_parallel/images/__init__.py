"""Images of the model benchmarks: synthetic, or from a data set on disk.

Data sets are never downloaded.
"""
