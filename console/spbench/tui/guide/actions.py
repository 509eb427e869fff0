"""The actions that have a key now, by their scope, and the ids of all actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from textual.binding import ActiveBinding, Binding
from textual.dom import DOMNode
from textual.screen import Screen

from spbench.tui.page import Page
from spbench.tui.pages import PAGES
from spbench.tui.widgets.keys import find_key_rank

_TOOLKIT_MODIFIER = "super+"
"""Keys that most terminals do not send; Textual adds them to those that they do."""
_MOTIONS = frozenset({"up", "down", "left", "right", "page-up", "page-down", "first", "last"})
"""Last parts of ids of actions that only move a cursor."""


class Scope(Enum):
    """The part of the screen that an action belongs to."""

    PANE = "This pane"
    PAGE = "This page"
    DIALOG = "This dialog"
    EVERYWHERE = "Everywhere"


@dataclass(frozen=True, slots=True)
class ActiveAction:
    """An action that has a key now.

    Attributes:
        scope: The part of the screen that it belongs to.
        keys: The displayed names of its keys.
        binding: Its first key binding.
        node: The widget, page or application that runs it.
        offered: Whether it has an effect now.
    """

    scope: Scope
    keys: tuple[str, ...]
    binding: Binding
    node: DOMNode
    offered: bool

    @property
    def id(self) -> str:
        """The id of the action."""
        return self.binding.id or ""

    @property
    def title(self) -> str:
        """A short name of the action."""
        return self.binding.description

    @property
    def description(self) -> str:
        """A description of its effect."""
        return self.binding.tooltip or self.binding.description

    @property
    def is_motion(self) -> bool:
        """Whether the action only moves a cursor."""
        return self.id.rpartition(".")[2] in _MOTIONS


def list_actions(screen: Screen[object]) -> list[ActiveAction]:
    """Return the actions that have a key now, those of the focused pane first.

    Actions of the toolkit have no id and are left out.
    """
    bindings_by_id: dict[str, list[ActiveBinding]] = {}
    for active in screen.active_bindings.values():
        if active.enabled and active.binding.id and active.binding.description:
            bindings_by_id.setdefault(active.binding.id, []).append(active)
    return [_make_action(screen, bindings) for bindings in bindings_by_id.values()]


def _make_action(screen: Screen[object], bindings: list[ActiveBinding]) -> ActiveAction:
    node = bindings[0].node
    binding = bindings[0].binding
    names = [active.binding.key for active in bindings]
    displayed = [
        active.binding for active in bindings if _TOOLKIT_MODIFIER not in active.binding.key
    ]
    is_offered = not (node is screen and isinstance(screen, Page)) or screen.offers(binding.action)
    keys = tuple(screen.app.get_key_display(shown) for shown in displayed) or tuple(names)
    return ActiveAction(_find_scope(screen, binding, node), keys, binding, node, is_offered)


def _find_scope(screen: Screen[object], binding: Binding, node: DOMNode) -> Scope:
    if node is screen.app or (binding.id or "").startswith("app."):
        return Scope.EVERYWHERE
    if node is not screen:
        return Scope.PANE
    return Scope.PAGE if isinstance(screen, Page) else Scope.DIALOG


def sort_by_relevance(screen: Screen[object], actions: list[ActiveAction]) -> list[ActiveAction]:
    """Return actions in the order of the page's most important keys, then the others."""
    order = screen.FOOTER if isinstance(screen, Page) else ()
    return sorted(actions, key=lambda action: find_key_rank(action.id, order))


def collect_action_ids() -> frozenset[str]:
    """Return the ids of all actions of the console; loads all pages."""
    for entry in PAGES:
        entry.load()
    # Loading the pages has imported all other widgets, except those of this package.
    from spbench.tui.guide import (  # noqa: F401
        cheat_sheet,
        help_screen,
        jump_dialog,
        message_screen,
        topics,
    )

    bindings = (
        binding for cls in _list_subclasses(DOMNode) for binding in vars(cls).get("BINDINGS", ())
    )
    return frozenset(
        binding.id for binding in bindings if isinstance(binding, Binding) and binding.id
    )


def _list_subclasses(cls: type[DOMNode]) -> Iterator[type[DOMNode]]:
    """Yield a class and all its direct and indirect subclasses."""
    yield cls
    for subclass in cls.__subclasses__():
        yield from _list_subclasses(subclass)
