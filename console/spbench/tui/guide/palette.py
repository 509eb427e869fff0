"""The commands of the palette: actions of this page and others, and themes."""

from __future__ import annotations

import dataclasses
import re
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
from spbench.tui.guide.topics import TOPICS, TopicScreen
from spbench.tui.page import Page, show_page
from spbench.tui.pages import PAGES
from spbench.tui.themes import THEMES
from spbench.tui.widgets.keys import find_key_rank
from spbench.tui.widgets.text import cell_width

LAST_WEIGHT = 0.5
"""Weight of the score of the last command; the first has 1, and the others are between."""


JUMP_PHRASE = "Search suites, runs, hosts and cases"
JUMP_SCORE = 0.01
"""Score of the jump, which is below all commands that match."""
_TITLE_SCORE = 1.0
_PREFIX_SCORE = 0.8
_PART_SCORE = 0.4
_FRAME_WIDTH = 7
"""Columns of the palette that are not text."""
_MAX_LINE_WIDTH = 84 - _FRAME_WIDTH
"""Columns of a line in a palette of full width; see console.tcss."""
_SCREEN_SHARE = 0.96
_KEY_GAP = 2
_MIN_PART_LENGTH = 3
"""Fewest letters of a match inside a word; with less, most commands would match."""


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


class JumpingApp(Protocol):
    """An application that goes to a suite, run, host or case."""

    def jump_to(self, text: str) -> None: ...


class ActionProvider(Provider):
    """Finds actions and themes by words or parts of words, and offers the jump last."""

    async def startup(self) -> None:
        """List the commands once, when the palette opens."""
        app = cast("ThemedApp", self.app)
        self._commands = list(list_commands(self.screen, app.choose_theme))

    async def discover(self) -> Hits:
        """Yield all commands, the most relevant first."""
        for command in self._commands:
            prompt = self._render_prompt(Content(command.phrase), command)
            yield DiscoveryHit(prompt, command.run, command.phrase)

    async def search(self, query: str) -> Hits:
        """Yield the commands that match; better and more relevant ones have higher scores."""
        is_found = False
        for index, command in enumerate(self._commands):
            score = rate_match(query, command.phrase, command.title)
            if score > 0:
                is_found = True
                weight = 1 - (1 - LAST_WEIGHT) * index / len(self._commands)
                prompt = self._render_prompt(highlight_terms(command.phrase, query), command)
                yield Hit(score * weight, prompt, command.run, command.phrase)
        jump = self._make_jump(query, is_found)
        if jump is not None:
            prompt = self._render_prompt(Content(jump.phrase), jump)
            yield Hit(JUMP_SCORE, prompt, jump.run, jump.phrase)

    def _render_prompt(self, phrase: Content, command: PaletteCommand) -> Content:
        """Return a line of the list, with the key at its right end."""
        if not command.key:
            return phrase
        width = min(_MAX_LINE_WIDTH, int(_SCREEN_SHARE * self.app.size.width) - _FRAME_WIDTH)
        gap = max(_KEY_GAP, width - phrase.cell_length - cell_width(command.key))
        return Content.assemble(phrase, " " * gap, (command.key, "$text-accent"))

    def _make_jump(self, query: str, is_found: bool) -> PaletteCommand | None:
        """Return the search for suites, runs, hosts and cases; None if a dialog is open."""
        if self.screen.is_modal:
            return None
        run = partial(cast("JumpingApp", self.app).jump_to, query)
        phrase = JUMP_PHRASE if is_found else f"No match. {JUMP_PHRASE}"
        return PaletteCommand(phrase, "", ":", run)


def rate_match(query: str, phrase: str, title: str) -> float:
    """Return how well a command has all words of a query, from 0 (not at all) to 1.

    A term matches the start of a word best, then a part of one if it has 3 letters or more.
    """
    names = _split_words(f"{title} {phrase}")
    scores = [_rate_term(term, names, title.lower()) for term in _split_words(query)]
    if not scores or min(scores) == 0:
        return 0
    return sum(scores) / len(scores)


def _split_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _rate_term(term: str, names: Iterable[str], title: str) -> float:
    if title.startswith(term):
        return _TITLE_SCORE
    if any(name.startswith(term) for name in names):
        return _PREFIX_SCORE
    is_part = len(term) >= _MIN_PART_LENGTH and any(term in name for name in names)
    return _PART_SCORE if is_part else 0


def highlight_terms(phrase: str, query: str) -> Content:
    """Return a phrase with the words of a query marked."""
    content = Content(phrase)
    for term in _split_words(query):
        start = phrase.lower().find(term)
        if start >= 0:
            content = content.stylize("bold $text-accent", start, start + len(term))
    return content


def list_commands(
    screen: Screen[object], use_theme: Callable[[str], None]
) -> Iterator[PaletteCommand]:
    """Yield the actions that have an effect here, general ones, and the others."""
    phrases: set[str] = set()
    commands = (
        *_list_active_commands(screen),
        *_list_theme_choice(screen),
        *_list_page_commands(screen),
        *_list_demo_commands(screen),
        *_list_topic_commands(screen),
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
    """Yield the actions of the pages that are not shown; none if a dialog is open."""
    if screen.is_modal:
        return
    readonly = isinstance(screen, Page) and screen.context.readonly
    for entry in PAGES:
        page = entry.load()
        if isinstance(screen, page):
            continue
        for binding in _order_bindings(page):
            if readonly and binding.action in page.MODIFYING_ACTIONS:
                continue
            if isinstance(screen, Page) and not page.has_use(binding.action, screen.context):
                continue
            run = partial(_run_on_page, screen.app, page.NAME, binding.action)
            phrase = f"{entry.title}: {_lower_first(binding.tooltip or binding.description)}"
            title = f"{entry.title} {binding.description}"
            yield PaletteCommand(phrase, title, _format_first_key(screen.app, binding), run)


def _order_bindings(page: type[Page]) -> Iterable[Binding]:
    bindings = [binding for binding in page.BINDINGS if isinstance(binding, Binding) and binding.id]
    return sorted(bindings, key=lambda binding: find_key_rank(binding.id, page.FOOTER))


async def _run_on_page(app: App[Any], page: str, action: str) -> None:
    """Show a page and run one of its actions."""
    await app.run_action(action, await show_page(app, page))


def _list_demo_commands(screen: Screen[object]) -> Iterator[PaletteCommand]:
    """Yield the replay of the recorded demo run; none while a run is running."""
    if isinstance(screen, Page) and not screen.context.is_run_active():
        phrase = "Watch the demo, a recorded run"
        yield PaletteCommand(phrase, "demo", "", screen.context.replay_demo)


def _list_topic_commands(screen: Screen[object]) -> Iterator[PaletteCommand]:
    """Yield the explanations of tasks; none if a dialog is open."""
    if screen.is_modal:
        return
    for topic in TOPICS:
        run = partial(screen.app.push_screen, TopicScreen(topic))
        yield PaletteCommand(f"Help: {topic.title}", "help", "", run)


def _list_theme_choice(screen: Screen[object]) -> Iterator[PaletteCommand]:
    """Yield the choice of a theme; none if a dialog is open."""
    if not screen.is_modal:
        run = partial(screen.app.run_action, "app.settings('theme')")
        yield PaletteCommand("Choose a theme", "theme", "", run)


def _list_theme_commands(
    app: App[Any], use_theme: Callable[[str], None]
) -> Iterator[PaletteCommand]:
    own_names = [theme.name for theme in THEMES]
    other_names = [name for name in app.available_themes if name not in own_names]
    for name in (*own_names, *other_names):
        yield PaletteCommand(f"Theme: {name}", "theme", "", partial(use_theme, name))


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _format_first_key(app: App[Any], binding: Binding) -> str:
    first_key = next(iter(binding.key.split(",")))
    return app.get_key_display(dataclasses.replace(binding, key=first_key))
