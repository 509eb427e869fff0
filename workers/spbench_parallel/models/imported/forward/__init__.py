"""A network's forward pass as a graph of operators, which every layout can compute."""
