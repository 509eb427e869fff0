"""The networks of the model benchmarks and the shapes of their layers."""
