"""What follows backward: sums of gradients over ranks, and updates of weights."""
