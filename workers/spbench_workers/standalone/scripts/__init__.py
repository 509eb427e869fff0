"""The reference scripts by name: the command lines that are printed for them, read as they are."""
