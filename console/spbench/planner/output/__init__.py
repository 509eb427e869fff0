"""Output of plans: JSON, text, pictures and suites."""
