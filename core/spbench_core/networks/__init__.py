"""The weights and biases of known networks, by name, depth and image."""
