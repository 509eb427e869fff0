"""Help, palette, cheat sheet, and the jump to a suite, run, host or case."""
