"""Speed of a rank's memory."""
