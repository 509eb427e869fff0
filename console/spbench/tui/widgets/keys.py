"""Key bindings of pages, tables and charts, and the bar that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from textual import events
from textual.binding import ActiveBinding, Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from spbench.tui.widgets.text import cell_width

GENERAL_IDS = ("app.quit", "app.palette", "app.cheat-sheet", "app.help")
"""Ids of the keys at the right end of the bar, from left to right."""
LEADING_KEYS = 4
"""Number of keys of pane and page that are more important than the palette."""
_GAP_WIDTH = 1
"""Smallest number of cells between the keys of the page and the general ones."""
_KEY_PADDING = 3
"""Cells of a key in the bar that are not text."""


_CHARACTERS = {
    "plus": "+",
    "minus": "-",
    "slash": "/",
    "backslash": "\\",
    "at": "@",
    "underscore": "_",
}
"""Characters by shortened key names; Textual does not know that a text field takes these."""


def make_binding(
    id: str, keys: str, action: str, title: str, tooltip: str, *, show: bool = False
) -> Binding:
    """Return a key binding that the key bar hides unless ``show`` is set.

    ``id`` is the name of the owner, a dot, and the name of the action.
    """
    return Binding(keys, action, title, show=show, id=id, tooltip=tooltip)


@dataclass(frozen=True, slots=True)
class BarKey:
    """A key in the bar.

    Attributes:
        key: The name of the key in Textual.
        display: The displayed name of the key.
        title: A short name of the action.
        id: The id of the action.
        action: The action.
        tooltip: A description of the action.
    """

    key: str
    display: str
    title: str
    id: str
    action: str
    tooltip: str

    @property
    def width(self) -> int:
        """The number of terminal cells that the key takes."""
        return cell_width(self.display) + cell_width(self.title) + _KEY_PADDING


def order_bindings(
    screen: Screen[object],
    order: Sequence[str] = (),
    offers: Callable[[str], bool] = lambda action: True,
) -> list[Binding]:
    """Return the bindings to show that have an effect now, the most relevant first.

    The order is: keys of the focused pane, keys of the page, and general ones.

    Args:
        screen: The screen.
        order: Ids of the most important keys of the page, the most important first.
        offers: Whether an action of the page has an effect now.
    """
    ranked: list[tuple[int, Binding]] = []
    known_actions: set[str] = set()
    for active in screen.active_bindings.values():
        binding = active.binding
        if not (binding.show or binding.id in order) or not active.enabled:
            continue
        if binding.action in known_actions or not _is_offered(active, screen, offers):
            continue
        if _is_typed(active, screen.focused):
            continue
        known_actions.add(binding.action)
        ranked.append((_find_rank(active, screen, order), binding))
    return [binding for _, binding in sorted(ranked, key=lambda pair: pair[0])]


def _is_typed(active: ActiveBinding, focused: Widget | None) -> bool:
    """Return whether the key is a character that the focused text field takes."""
    key = active.binding.key
    if focused is None or active.node is focused or key not in _CHARACTERS:
        return False
    return focused.check_consume_key(key, _CHARACTERS[key])


def _is_offered(active: ActiveBinding, screen: DOMNode, offers: Callable[[str], bool]) -> bool:
    return active.node is not screen or offers(active.binding.action)


def _find_rank(active: ActiveBinding, screen: DOMNode, order: Sequence[str]) -> int:
    """Return the sort key of a binding; equal ones keep their order."""
    id = active.binding.id or ""
    if id in GENERAL_IDS:
        return len(order) + 2 + GENERAL_IDS.index(id)
    is_of_pane = active.node not in (screen, screen.app)
    return -1 if is_of_pane and id not in order else find_key_rank(id, order)


def find_key_rank(id: str | None, order: Sequence[str]) -> int:
    """Return the index of a key among the most important ones, or a larger number."""
    return order.index(id) if id is not None and id in order else len(order)


def fit_keys(keys: Iterable[BarKey], width: int) -> list[BarKey]:
    """Return the keys that fit in ``width`` cells, in their order.

    Whole keys are left out, the least important first. Those of help, all keys and quit stay
    longest.
    """
    fitting_keys = list(keys)
    contextual = [key.id for key in fitting_keys if key.id not in GENERAL_IDS]
    importance = [
        *("app.help", "app.cheat-sheet", "app.quit"),
        *contextual[:LEADING_KEYS],
        "app.palette",
        *contextual[LEADING_KEYS:],
    ]
    while len(fitting_keys) > 1 and sum(key.width for key in fitting_keys) > width:
        fitting_keys.remove(max(fitting_keys, key=lambda key: importance.index(key.id)))
    return fitting_keys


class KeyBar(Widget, can_focus=False):
    """The keys of the focused pane and of the page, and at the right the general ones.

    It is one widget of one line: the footer of Textual has a widget for each key, which takes
    longer to open than the other widgets of a page.

    Args:
        order: Ids of the most important keys of the page, the most important first.
        offers: Whether an action of the page has an effect now.
        find_title: Returns the present title of an action; None for that of its binding.

    Attributes:
        shown: The keys that fit, from left to right.
    """

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyBar {
        dock: bottom;
        height: 1;
        color: $footer-foreground;
        background: $footer-background;
        text-wrap: nowrap;
    }
    """

    def __init__(
        self,
        order: Sequence[str] = (),
        offers: Callable[[str], bool] = lambda action: True,
        find_title: Callable[[str], str | None] = lambda action: None,
    ) -> None:
        super().__init__()
        self.shown: Sequence[BarKey] = ()
        self._order = order
        self._offers = offers
        self._find_title = find_title
        self._all_keys: Sequence[BarKey] = ()
        self._hovered: BarKey | None = None

    def on_mount(self) -> None:
        """Show the keys again whenever the focus or the effect of a key changes."""
        self.screen.bindings_updated_signal.subscribe(self, self._on_bindings_updated)

    def _on_bindings_updated(self, screen: Screen[object]) -> None:
        if self.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self.update_keys)

    def update_keys(self) -> None:
        """Show the keys that have an effect now, as far as they fit."""
        # A dialog in front of the page disables some keys for a while; the bar keeps those that
        # will have an effect.
        if not self._all_keys or self.app.screen is self.screen:
            self._all_keys = self._list_keys()
        else:
            self._all_keys = [key for key in self._all_keys if self._offers(key.action)]
        shown = fit_keys(self._all_keys, self.size.width - _GAP_WIDTH)
        if shown != self.shown:
            self.shown = shown
            self._hovered = None
            self.refresh()

    def on_resize(self) -> None:
        """Show as many keys as fit in the new width."""
        if self._all_keys:
            self.update_keys()

    def render(self) -> Content:
        """Return the line."""
        general_width = sum(key.width for key in self.shown if key.id in GENERAL_IDS)
        contextual_width = sum(key.width for key in self.shown) - general_width
        contextual = [self._draw(key) for key in self.shown if key.id not in GENERAL_IDS]
        general = [self._draw(key) for key in self.shown if key.id in GENERAL_IDS]
        gap = " " * (self.size.width - contextual_width - general_width)
        return Content.assemble(*contextual, gap, *general)

    def _draw(self, key: BarKey) -> Content:
        background = " on $block-hover-background" if key is self._hovered else ""
        return Content.assemble(
            (f" {key.display} ", f"bold $footer-key-foreground{background}"),
            (f"{key.title} ", f"$footer-description-foreground{background}"),
        )

    def find_key(self, x: int) -> BarKey | None:
        """Return the key in a column of the bar; None in the gap."""
        start = 0
        remaining = sum(key.width for key in self.shown)
        for key in self.shown:
            if key.id in GENERAL_IDS:
                start = max(start, self.size.width - remaining)
            if start <= x < start + key.width:
                return key
            start += key.width
            remaining -= key.width
        return None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Highlight and describe the key under the pointer."""
        self._hover(self.find_key(event.x))

    def on_leave(self) -> None:
        """Highlight no key."""
        self._hover(None)

    def _hover(self, key: BarKey | None) -> None:
        if key is not self._hovered:
            self._hovered = key
            self.tooltip = key.tooltip if key is not None else None
            self.refresh()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Press the key under the pointer."""
        if (key := self.find_key(event.x)) is not None:
            self.app.simulate_key(key.key)

    def _list_keys(self) -> list[BarKey]:
        return [
            BarKey(
                binding.key,
                self.app.get_key_display(binding),
                self._find_title(binding.action) or binding.description,
                binding.id or binding.action,
                binding.action,
                binding.tooltip,
            )
            for binding in order_bindings(self.screen, self._order, self._offers)
        ]
