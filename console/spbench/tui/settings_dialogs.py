"""Dialogs for the settings of the console: theme, refresh rate and keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from textual.app import App
from textual.widgets import OptionList

from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import AskLine
from spbench.tui.guide.topics import Topic, TopicScreen
from spbench.tui.settings import MAX_REFRESH_HZ, MIN_REFRESH_HZ, parse_refresh_rate
from spbench.tui.stored_settings import StoredSettings
from spbench.tui.themes import THEMES

if TYPE_CHECKING:
    from spbench.tui.context import ConsoleContext

_KEYS_TEXT = """\
Keys are changed in the file {path}:

keys:
  run.cancel: X
  app.jump: colon,ctrl+g

An entry has the id of an action and its keys, with commas between them. F1 shows the ids at the
right of each action. The keys change when the console opens the next time, and errors are reported
then."""


class SettingsApp(Protocol):
    """An application with settings."""

    settings: StoredSettings
    context: ConsoleContext

    def choose_theme(self, name: str) -> None: ...

    def save_setting(self, name: str, value: str | float) -> bool: ...


class ThemeChooser(Chooser):
    """A list of themes that previews the marked one; Escape restores the earlier one."""

    HELP: ClassVar[str] = """\
The console has the colours of the marked theme. Enter saves it; Escape restores the earlier
theme."""

    def __init__(self, names: Iterable[str], current: str) -> None:
        own_names = {theme.name for theme in THEMES}
        others = sorted(names, key=lambda name: name not in own_names)  # those of spbench first
        choices = [
            Choice(name, "of spbench" if name in own_names else "")
            for name in others
            if name != current
        ]
        super().__init__("Theme", [Choice(current, "the present one"), *choices])
        self._current = current

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the theme under the cursor."""
        if self.is_current and event.option_index < len(self._shown):
            self.app.theme = self._shown[event.option_index].name

    def action_leave(self) -> None:
        """Restore the earlier theme."""
        self.app.theme = self._current
        super().action_leave()


async def choose_setting(app: App[Any], chosen: str = "") -> None:
    """Ask for a setting unless one is chosen, and for its value."""
    stored = _get_settings(app).settings
    settings = stored.current
    choices = [
        Choice("theme", f"colours: {settings.theme}"),
        Choice("refresh rate", f"at most {settings.refresh_hz:g} drawings per second"),
        Choice("keys", f"other keys for actions: {len(settings.keys)} so far"),
        Choice("file", _shorten_home(stored.path), enabled=False),
    ]
    name: str | None = chosen
    if not chosen:
        name = await app.push_screen_wait(Chooser("Settings", choices))
    if name == "theme":
        await _choose_theme(app)
    elif name == "refresh rate":
        await _choose_refresh_rate(app)
    elif name == "keys":
        text = _KEYS_TEXT.format(path=stored.path)
        await app.push_screen_wait(TopicScreen(Topic("Keys of actions", text)))


async def _choose_theme(app: App[Any]) -> None:
    name = await app.push_screen_wait(ThemeChooser(app.available_themes, app.theme))
    if name is not None:
        _get_settings(app).choose_theme(name)


async def _choose_refresh_rate(app: App[Any]) -> None:
    settings_app = _get_settings(app)
    limits = f"{MIN_REFRESH_HZ:g} to {MAX_REFRESH_HZ:g}"
    question = f"Most drawings per second, {limits}; less for slow connections:"
    current = f"{settings_app.settings.current.refresh_hz:g}"
    dialog = AskLine(question, parse_refresh_rate, current, required="a number")
    rate: float | None = await app.push_screen_wait(dialog)
    if rate is not None and settings_app.save_setting("refresh_hz", rate):
        settings_app.context.refresh_hz = rate
        app.notify(f"at most {rate:g} drawings per second", title="Refresh rate", timeout=4)


def _get_settings(app: App[Any]) -> SettingsApp:
    return cast("SettingsApp", app)


def _shorten_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
