"""Key bindings of pages, tables and charts."""

from __future__ import annotations

from textual.binding import Binding


def key(
    id: str, keys: str, action: str, title: str, tooltip: str, *, show: bool = False
) -> Binding:
    """Return a key binding that the footer hides unless ``show`` is set.

    ``id`` is the name of the owner, a dot, and the name of the action.
    """
    return Binding(keys, action, title, show=show, id=id, tooltip=tooltip)
