"""Training: sums of gradients over ranks, and updates of weights, after the backward passes."""
