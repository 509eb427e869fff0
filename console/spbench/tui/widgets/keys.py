"""Key bindings of pages, tables and charts, and the bar that shows them."""

from __future__ import annotations

from textual.binding import Binding
from textual.widgets import Footer


def make_binding(
    id: str, keys: str, action: str, title: str, tooltip: str, *, show: bool = False
) -> Binding:
    """Return a key binding that the key bar hides unless ``show`` is set.

    ``id`` is the name of the owner, a dot, and the name of the action.
    """
    return Binding(keys, action, title, show=show, id=id, tooltip=tooltip)


class KeyBar(Footer):
    """The keys of the page and of the focused widget.

    Textual composes a footer again at every change of the focus, which takes longer than the
    change itself; this one is composed again only if its keys change.
    """

    _shown: list[tuple[Binding, bool, str]] | None = None

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)

    async def recompose(self) -> None:
        """Compose the keys again if they have changed."""
        shown = [
            (binding, enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show
        ]
        if shown != self._shown:
            self._shown = shown
            await super().recompose()
