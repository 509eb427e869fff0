"""The networks of the model benchmarks, as layers whose shapes are known without torch."""
