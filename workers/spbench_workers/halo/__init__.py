"""Exchange of borders between the tiles of an image."""
