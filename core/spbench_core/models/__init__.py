"""The networks of the model benchmarks: layers with shapes, without torch."""
