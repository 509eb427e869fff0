"""A standalone benchmark: command lines, ours and the reference scripts', and what they print."""
