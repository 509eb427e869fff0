"""Images of the model benchmarks: synthetic, or read from a data set on disk, never downloaded."""
