"""Links between pairs of ranks. Nothing here imports torch."""
