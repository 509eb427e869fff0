"""Pipeline stages on a rank: their forward and backward passes, and the messages between them."""
