"""The Run page: cases, ranks, charts and findings of the watched run."""
