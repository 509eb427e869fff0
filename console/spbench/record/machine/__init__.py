"""The machines of a run: facts, fingerprints, and the locations of ranks."""
