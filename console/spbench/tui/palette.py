"""Every action as a command of the palette, under its area: ``run: cancel``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from spbench.tui.help import HelpScreen
from spbench.tui.pages import PAGES


def list_commands(
    screen: Screen[object], readonly: bool, use_theme: Callable[[str], None]
) -> Iterable[SystemCommand]:
    """Return what works here, what the other pages can do, and the themes."""
    app = screen.app
    told = set[str]()
    for command in (*_active(screen), *_of_pages(app, readonly), *_themes(app, use_theme)):
        if command.title not in told:
            told.add(command.title)
            yield command


def _active(screen: Screen[object]) -> Iterator[SystemCommand]:
    for active in screen.active_bindings.values():
        binding = active.binding
        if active.enabled and binding.id:
            run = partial(screen.app.run_action, binding.action, active.node)
            yield SystemCommand(_title(binding), _told(screen.app, binding), run)


def _of_pages(app: App[Any], readonly: bool) -> Iterator[SystemCommand]:
    """The pages' own actions: the page is shown first."""
    for entry in PAGES:
        page = entry.load()
        for binding in page.BINDINGS:
            changes = isinstance(binding, Binding) and binding.action in page.MODIFYING_ACTIONS
            if isinstance(binding, Binding) and binding.id and not (readonly and changes):
                run = partial(_elsewhere, app, page.NAME, binding.action)
                yield SystemCommand(_title(binding), _told(app, binding), run)


async def _elsewhere(app: App[Any], page: str, action: str) -> None:
    if app.current_mode != page:
        await app.switch_mode(page)
    await app.run_action(action, app.screen)


def collect_action_ids() -> frozenset[str]:
    """Return the id of every action of the console, of all that can have the focus."""
    for entry in PAGES:
        entry.load()
    kinds = (HelpScreen, *_kinds(DOMNode))  # all others were loaded with the pages
    bindings = (binding for kind in kinds for binding in vars(kind).get("BINDINGS", ()))
    return frozenset(one.id for one in bindings if isinstance(one, Binding) and one.id)


def _kinds(kind: type[DOMNode]) -> Iterator[type[DOMNode]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)


def _themes(app: App[Any], use_theme: Callable[[str], None]) -> Iterator[SystemCommand]:
    for name in app.available_themes:
        yield SystemCommand(f"theme: {name}", "Use this theme", partial(use_theme, name))


def _told(app: App[Any], binding: Binding) -> str:
    """Return what an action does, and its first key."""
    first = next(iter(binding.key.split(",")))
    key = app.get_key_display(dataclasses.replace(binding, key=first))
    return f"{binding.tooltip or binding.description}  ({key})"


def _title(binding: Binding) -> str:
    area = (binding.id or "").partition(".")[0]
    return f"{area}: {binding.description.lower()}"
