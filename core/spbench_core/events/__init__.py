"""Events: the JSON lines with which ranks and the console report on a run."""
