"""Parameter lists of MXNet's networks, by name, depth and image."""
