"""Recorded runs on disk: their folders, event logs, summaries and playback."""
