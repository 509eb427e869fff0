"""What a run leaves: RunState, run folders, statistics, queries."""
