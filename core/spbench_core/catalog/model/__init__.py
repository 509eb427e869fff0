"""The model benchmarks' room of the catalog: parameters, what follows from them, and entries."""
