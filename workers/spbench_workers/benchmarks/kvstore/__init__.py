"""Key-value store for gradients: pushes are summed, and pulls return the result."""
