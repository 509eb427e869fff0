"""The Run page: cases, ranks, charts and words of the run that is watched."""
