"""References of a model over many ranks, and faults that they must find."""
