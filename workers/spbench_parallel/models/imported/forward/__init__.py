"""The forward pass of a network as a graph of operators for every layout."""
