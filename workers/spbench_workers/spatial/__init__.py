"""Images that are cut into tiles, one tile a rank."""
