"""Launching: hosts, launchers, their detection, and the command of each job."""
