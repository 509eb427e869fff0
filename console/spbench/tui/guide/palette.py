"""The commands of the palette: actions of this page and others, and themes."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from textual.app import App
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.screen import Screen

from spbench.tui.guide.actions import ActiveAction, Scope, list_actions, sort_by_relevance
from spbench.tui.page import Page
from spbench.tui.pages import PAGES

LAST_WEIGHT = 0.5
"""Weight of the score of the last command; the first has 1, and the others are between."""


@dataclass(frozen=True, slots=True)
class PaletteCommand:
    """A command of the palette.

    Attributes:
        phrase: A description of its effect.
        title: The short name of the action; the search finds it, too.
        key: The displayed name of its key; empty without one.
        run: Runs it.
    """

    phrase: str
    title: str
    key: str
    run: Callable[[], Awaitable[object] | object]


class ThemedApp(Protocol):
    """An application that remembers a theme."""

    def choose_theme(self, name: str) -> None: ...


class ActionProvider(Provider):
    """Finds actions and themes by words, or by letters that their phrases contain."""

    async def discover(self) -> Hits:
        """Yield all commands, the most relevant first."""
        for command in self._list():
            prompt = _render_prompt(Content(command.phrase), command)
            yield DiscoveryHit(prompt, command.run, command.phrase)

    async def search(self, query: str) -> Hits:
        """Yield the commands that match; relevant ones have higher scores."""
        matcher = self.matcher(query)
        commands = self._list()
        for index, command in enumerate(commands):
            score = max(matcher.match(command.phrase), matcher.match(command.title))
            if score > 0:
                weight = 1 - (1 - LAST_WEIGHT) * index / len(commands)
                prompt = _render_prompt(matcher.highlight(command.phrase), command)
                yield Hit(score * weight, prompt, command.run, command.phrase)

    def _list(self) -> list[PaletteCommand]:
        app = cast("ThemedApp", self.app)
        return list(list_commands(self.screen, app.choose_theme))


def _render_prompt(phrase: Content, command: PaletteCommand) -> Content:
    if not command.key:
        return phrase
    return Content.assemble(phrase, "  ", (command.key, "$text-accent"))


def list_commands(
    screen: Screen[object], use_theme: Callable[[str], None]
) -> Iterator[PaletteCommand]:
    """Yield the actions that have an effect here, general ones, and the others."""
    phrases: set[str] = set()
    commands = (
        *_list_active_commands(screen),
        *_list_page_commands(screen),
        *_list_theme_commands(screen.app, use_theme),
    )
    for command in commands:
        if command.phrase not in phrases:
            phrases.add(command.phrase)
            yield command


def _list_active_commands(screen: Screen[object]) -> Iterator[PaletteCommand]:
    actions = sort_by_relevance(screen, list_actions(screen))
    scopes = (Scope.PAGE, Scope.DIALOG, Scope.PANE, Scope.EVERYWHERE)
    for scope in scopes:
        for action in actions:
            if action.scope is scope and action.offered and not action.is_motion:
                yield _make_active_command(screen.app, action)


def _make_active_command(app: App[Any], action: ActiveAction) -> PaletteCommand:
    run = partial(app.run_action, action.binding.action, action.node)
    return PaletteCommand(action.description, action.title, action.keys[0], run)


def _list_page_commands(screen: Screen[object]) -> Iterator[PaletteCommand]:
    """Yield the actions of the pages that are not shown."""
    readonly = isinstance(screen, Page) and screen.context.readonly
    for entry in PAGES:
        page = entry.load()
        if isinstance(screen, page):
            continue
        for binding in _order_bindings(page):
            if readonly and binding.action in page.MODIFYING_ACTIONS:
                continue
            run = partial(_run_on_page, screen.app, page.NAME, binding.action)
            phrase = f"{entry.title}: {_lower_first(binding.tooltip or binding.description)}"
            title = f"{entry.title} {binding.description}"
            yield PaletteCommand(phrase, title, _format_first_key(screen.app, binding), run)


def _order_bindings(page: type[Page]) -> Iterable[Binding]:
    order = page.FOOTER
    bindings = [binding for binding in page.BINDINGS if isinstance(binding, Binding) and binding.id]
    return sorted(
        bindings,
        key=lambda binding: order.index(binding.id or "") if binding.id in order else len(order),
    )


async def _run_on_page(app: App[Any], page: str, action: str) -> None:
    """Show a page and run one of its actions."""
    if app.current_mode != page:
        await app.switch_mode(page)
    await app.run_action(action, app.screen)


def _list_theme_commands(
    app: App[Any], use_theme: Callable[[str], None]
) -> Iterator[PaletteCommand]:
    for name in app.available_themes:
        yield PaletteCommand(f"Theme: {name}", "theme", "", partial(use_theme, name))


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _format_first_key(app: App[Any], binding: Binding) -> str:
    first_key = next(iter(binding.key.split(",")))
    return app.get_key_display(dataclasses.replace(binding, key=first_key))
