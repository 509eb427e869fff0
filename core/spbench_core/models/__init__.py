"""The networks of the model benchmarks, with the shapes of their layers, without torch."""
