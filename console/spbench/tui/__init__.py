"""The console in a terminal: pages over the same state that headless prints. It decides nothing."""
