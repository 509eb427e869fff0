"""Commands that profile models and plan their training."""
