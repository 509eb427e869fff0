"""Training after backward passes: sums of gradients, and updates of weights."""
