"""The opening of the TUI by ``spbench tui`` and ``replay``.

This module does not import the library that parses command lines: its import takes 0.15 s, and most
users open the TUI with a suite at most.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Required, TypedDict, Unpack

from spbench.cli.opening_line import is_in_terminal
from spbench.errors import UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder

DEFAULT_RUN = "last"
MAX_SPEED = "max"
REAL_TIME = "1"
_ARGUMENT = "argument"
"""The name of the value that belongs to no option."""
_PLAIN_FLAGS: Mapping[str, frozenset[str]] = {
    "tui": frozenset({"--demo", "--readonly"}),
    "replay": frozenset(),
}
"""The options without a value that need no option parser, by command."""
_PLAIN_OPTIONS: Mapping[str, frozenset[str]] = {
    "tui": frozenset({"--home", "--hostfile", "--hosts", "--exclude-hosts", "--launcher"}),
    "replay": frozenset({"--home", "--speed"}),
}
"""The options with a value that need no option parser, by command."""


class TuiOptions(TypedDict, total=False):
    """The arguments of `spbench.tui.start.open_tui`, which `cli` may not import."""

    home: Required[Path]
    suite: Path | None
    recorded: RunFolder | None
    speed: float | None
    readonly: bool
    launch_choice: LaunchChoice


class OpenTui(Protocol):
    """A function that shows the TUI until it is closed, and returns its exit code."""

    def __call__(self, **options: Unpack[TuiOptions]) -> int: ...


def open_suites(
    open_tui: OpenTui,
    *,
    suite: Path | None = None,
    demo: bool = False,
    readonly: bool = False,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
    home: Path | None = None,
) -> int:
    """Open the TUI with a suite or the recorded demo, and return its exit code.

    Raises:
        UsageError: There is no terminal.
    """
    from spbench.record.runs.folder import find_home

    if not is_in_terminal():
        raise UsageError(
            "the console needs a terminal; without one use spbench run SUITE --headless"
        )
    recorded = None
    if demo:
        from spbench.record.runs.playback import find_demo_run

        recorded = find_demo_run()
        suite = suite or recorded.path / "suite.yaml"
    return open_tui(
        home=find_home(home, os.environ),
        suite=suite,
        recorded=recorded,
        readonly=readonly,
        launch_choice=launch_choice,
    )


def open_replay(
    open_tui: OpenTui,
    *,
    run: str = DEFAULT_RUN,
    speed: str | None = None,
    headless: bool = False,
    home: Path | None = None,
    verbose: bool = False,
) -> int:
    """Replay a run in the TUI or as lines, and return the exit code.

    Raises:
        UsageError: There is no such run or speed.
    """
    from spbench.record.runs.folder import find_home, find_run

    root = find_home(home, os.environ)
    folder = find_run(root, run)
    if headless or not is_in_terminal():
        from spbench.cli.runs.lines import replay_lines

        replay_lines(folder, parse_speed(speed or MAX_SPEED), print, int(verbose))
        return 0
    factor = parse_speed(speed or REAL_TIME)
    return open_tui(home=root, recorded=folder, speed=factor, readonly=True)


def parse_speed(text: str) -> float | None:
    """Return a speed: a number above 0, or ``max`` (None).

    Raises:
        UsageError: The text is neither.
    """
    if text == MAX_SPEED:
        return None
    if re.fullmatch(r"\d+(\.\d+)?x?", text) and (speed := float(text.rstrip("x"))) > 0:
        return speed
    raise UsageError(f"--speed {text}: write a number above 0 such as 0.5, 1 or 20, or max")


def find_plain_command(arguments: Sequence[str], open_tui: OpenTui) -> Callable[[], int] | None:
    """Return the action of a command line that needs no option parser; otherwise None."""
    values = _parse_plain_arguments(arguments)
    if values is None:
        return None
    home = Path(values["--home"]) if "--home" in values else None
    if arguments[0] == "replay":
        run = values.get(_ARGUMENT, DEFAULT_RUN)
        return partial(open_replay, open_tui, run=run, speed=values.get("--speed"), home=home)
    return partial(
        open_suites,
        open_tui,
        suite=Path(values[_ARGUMENT]) if _ARGUMENT in values else None,
        demo="--demo" in values,
        readonly="--readonly" in values,
        launch_choice=LaunchChoice(
            hostfile=Path(values["--hostfile"]) if "--hostfile" in values else None,
            hosts=values.get("--hosts"),
            exclude_hosts=values.get("--exclude-hosts"),
            launcher=values.get("--launcher"),
        ),
        home=home,
    )


def _parse_plain_arguments(arguments: Sequence[str]) -> Mapping[str, str] | None:
    """Return the values by option; None if an option parser is needed."""
    command = arguments[0] if arguments else ""
    if command not in _PLAIN_FLAGS:
        return None
    values: dict[str, str] = {}
    remaining = iter(arguments[1:])
    for word in remaining:
        name = word if word.startswith("-") else _ARGUMENT
        if name in values:
            return None
        if name in _PLAIN_FLAGS[command]:
            values[name] = ""
            continue
        if name in _PLAIN_OPTIONS[command]:
            values[name] = next(remaining, "")
        elif name == _ARGUMENT and ":" not in word:  # shipped:NAME is checked by the option parser
            values[name] = word
        else:
            return None
        if not values[name] or values[name].startswith("-"):
            return None
    return values
