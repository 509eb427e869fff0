"""Plans as other programs and people read them: JSON, text, pictures, suites."""
