"""Statistics of times: pure functions, each with the source of its method."""
