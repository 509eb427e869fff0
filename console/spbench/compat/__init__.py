"""Other programs' Python interfaces over spbench's own: a name each, and nothing of its own."""
