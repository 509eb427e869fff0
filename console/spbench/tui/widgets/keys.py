"""Keys that the footer does not show unless it is asked to: those of pages, tables and charts."""

from __future__ import annotations

from textual.binding import Binding


def key(
    id: str, keys: str, action: str, title: str, tooltip: str, *, show: bool = False
) -> Binding:
    """Return a binding whose ``id`` is the owner's name, a dot and the action's name."""
    return Binding(keys, action, title, show=show, id=id, tooltip=tooltip)
