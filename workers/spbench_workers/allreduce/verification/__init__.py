"""What a collective must bring about, and whether it does."""
