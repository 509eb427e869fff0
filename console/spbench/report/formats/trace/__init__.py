"""A run on one time line, as Perfetto and Chrome's tracing show it."""
