"""Speed of a rank's arithmetic."""
