"""A key-value store for gradients: pushes are summed, pulls bring the sum or the weights."""
