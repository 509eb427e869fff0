"""Images of the model benchmarks: made up, or read from a data set on disk. Nothing is fetched."""
