"""The device of a rank: its streams, memory, number formats and errors."""
