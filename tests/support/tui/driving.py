"""The console as tests drive it: its application, and waiting for what it shows."""

from __future__ import annotations

import os
import time

from textual.events import Key
from textual.keys import _character_to_key

from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleOptions

DEADLINE = 20.0
SIZES = ((80, 24), (200, 60))


def console(folder, **asked):
    """The console with a home and settings of its own, both in ``folder``."""
    environ = {"PWD": os.environ["PWD"], **asked.pop("environ", {})}
    environ["SPBENCH_CONFIG"] = str(folder / "console.yaml")
    home = asked.pop("home", folder / "home")
    return ConsoleApp(ConsoleOptions(home=home, environ=environ, folder=folder, **asked))


async def until(pilot, condition, deadline=DEADLINE):
    """Let the application go on until the condition holds."""
    ends = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < ends, f"not within {deadline:g} s; shown:\n{shown(pilot.app)}"
        await pilot.pause(0.02)


def in_one_write(app, keys):
    """Type letters or named keys as a terminal hands over what comes at once, without waiting."""
    for key in keys:
        letter = key if len(key) == 1 else None
        app.post_message(Key(_character_to_key(key) if letter else key, letter))


def shown(app):
    """The text of the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
