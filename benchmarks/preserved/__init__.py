"""What must not change when code moves: commands, records and faults of one commit as text."""
