"""A run: jobs, processes, the collector of rank events, deadlines."""
