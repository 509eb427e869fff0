"""Output that must not change when code moves, as texts of one commit."""
