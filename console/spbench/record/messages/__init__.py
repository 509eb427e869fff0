"""Messages about a run, the same in every view."""
