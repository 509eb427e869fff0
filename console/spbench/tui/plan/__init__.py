"""The Plan page: planning a pipeline, and comparing it with a run."""
