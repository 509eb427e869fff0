"""The form of a case: its fields, what is typed into them, and the text that comes of it."""
