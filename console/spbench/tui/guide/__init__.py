"""Ways to find what the console can do: help, palette, cheat sheet, and the jump to a place."""
