"""The report: built from RunState, written as JSON."""
