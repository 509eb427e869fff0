"""Programs that are run as they are: what their output is expected to hold, and how it is read."""
