"""Forms: rows of fields with a search, which pages fill in and read."""
