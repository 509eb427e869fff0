"""Counts with their nouns, for messages."""


def format_quantity(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 error`` or ``3 errors``; ``plural`` if an s is not enough."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"
