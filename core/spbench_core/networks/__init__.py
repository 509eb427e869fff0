"""Parameter lists of networks of MXNet, by name, depth and image."""
