"""The device of a rank: which one, its streams and its clock, its settings and its errors."""
