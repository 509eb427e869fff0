"""One step of a plan, simulated event by event: its time and its memory."""
