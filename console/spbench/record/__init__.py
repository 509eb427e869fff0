"""The record of a run: its events and folder, its RunState, and statistics of both."""
