"""The help screen and the commands of the palette: the actions of the console."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from spbench.tui.pages import PAGES


class ActiveKey(NamedTuple):
    """The keys of an action that works now, its description, and its id."""

    keys: str
    description: str
    id: str


class HelpScreen(ModalScreen[None]):
    """The help of the focused widget, and the keys that work there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,question_mark", "app.pop_screen", "Close", id="help.close"),
    ]

    def __init__(self, text: str, keys: list[ActiveKey]) -> None:
        super().__init__()
        self._text = text
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(self._text + "\n"))
            yield Static(self._build_table())

    def _build_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("key", "action", "id"):
            table.add_column(title)
        for row in self._keys:
            table.add_row(*(Text(cell) for cell in row))
        return table


def build_help(screen: Screen[object]) -> str:
    """Return the help of the focused widget, then of the pane and the page around it."""
    node = screen.focused or screen
    helps = [getattr(widget, "HELP", "") for widget in node.ancestors_with_self]
    texts = [text.strip() for text in helps if isinstance(text, str) and text.strip()]
    return "\n\n".join(dict.fromkeys(texts)) or "No help here."


def list_active_keys(screen: Screen[object]) -> list[ActiveKey]:
    """Return keys, description and id of every binding that works now."""
    keys_by_action: dict[tuple[str, str], list[str]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if active.enabled and binding.description:
            action = (binding.tooltip or binding.description, binding.id or "")
            keys_by_action.setdefault(action, []).append(screen.app.get_key_display(binding))
    return [
        ActiveKey(" ".join(keys), description, id)
        for (description, id), keys in keys_by_action.items()
    ]


def list_commands(
    screen: Screen[object], readonly: bool, use_theme: Callable[[str], None]
) -> Iterable[SystemCommand]:
    """Yield palette commands for active actions, the actions of pages, and themes.

    A title consists of area and action: ``run: cancel``.
    """
    app = screen.app
    titles = set[str]()
    commands = (
        *_list_active_commands(screen),
        *_list_page_commands(app, readonly),
        *_list_theme_commands(app, use_theme),
    )
    for command in commands:
        if command.title not in titles:
            titles.add(command.title)
            yield command


def _list_active_commands(screen: Screen[object]) -> Iterator[SystemCommand]:
    for active in screen.active_bindings.values():
        binding = active.binding
        if active.enabled and binding.id:
            run = partial(screen.app.run_action, binding.action, active.node)
            yield SystemCommand(_format_title(binding), _describe(screen.app, binding), run)


def _list_page_commands(app: App[Any], readonly: bool) -> Iterator[SystemCommand]:
    for entry in PAGES:
        page = entry.load()
        for binding in page.BINDINGS:
            if not isinstance(binding, Binding) or not binding.id:
                continue
            if readonly and binding.action in page.MODIFYING_ACTIONS:
                continue
            run = partial(_run_on_page, app, page.NAME, binding.action)
            yield SystemCommand(_format_title(binding), _describe(app, binding), run)


async def _run_on_page(app: App[Any], page: str, action: str) -> None:
    """Show a page and run one of its actions."""
    if app.current_mode != page:
        await app.switch_mode(page)
    await app.run_action(action, app.screen)


def _list_theme_commands(
    app: App[Any], use_theme: Callable[[str], None]
) -> Iterator[SystemCommand]:
    for name in app.available_themes:
        yield SystemCommand(f"theme: {name}", "Use this theme", partial(use_theme, name))


def _format_title(binding: Binding) -> str:
    area = (binding.id or "").partition(".")[0]
    return f"{area}: {binding.description.lower()}"


def _describe(app: App[Any], binding: Binding) -> str:
    """Return the description of an action and its first key."""
    first_key = next(iter(binding.key.split(",")))
    key = app.get_key_display(dataclasses.replace(binding, key=first_key))
    return f"{binding.tooltip or binding.description}  ({key})"


def collect_action_ids() -> frozenset[str]:
    """Return the ids of all actions of the console; loads all pages."""
    for entry in PAGES:
        entry.load()
    # Loading the pages has imported all other widgets.
    classes = (HelpScreen, *_list_subclasses(DOMNode))
    bindings = (binding for cls in classes for binding in vars(cls).get("BINDINGS", ()))
    return frozenset(
        binding.id for binding in bindings if isinstance(binding, Binding) and binding.id
    )


def _list_subclasses(cls: type[DOMNode]) -> Iterator[type[DOMNode]]:
    """Yield a class and all its direct and indirect subclasses."""
    yield cls
    for subclass in cls.__subclasses__():
        yield from _list_subclasses(subclass)
