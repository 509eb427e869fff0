"""The record of a run: its events, its folder, its state and its findings."""
