"""External programs that run instead of the ranks."""
