"""Validation of a model over many ranks: references, and injected faults that they must find."""
