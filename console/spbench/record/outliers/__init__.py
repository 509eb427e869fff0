"""Statistical tests for outliers among hosts, ranks and links."""
