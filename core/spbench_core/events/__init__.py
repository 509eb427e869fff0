"""Events: what ranks and the console say of a run, line by line."""
