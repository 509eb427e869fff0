"""Pipeline stages on a rank: their passes, and the messages between them."""
