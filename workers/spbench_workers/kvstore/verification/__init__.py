"""What a store must hold, and whether every rank holds it."""
