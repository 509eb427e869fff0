"""A run as one self-contained HTML page, without scripts, fonts or other hosts."""
