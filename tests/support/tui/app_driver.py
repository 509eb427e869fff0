"""Helpers that run the console in a test and wait for the contents of its screen."""

from __future__ import annotations

import os
import time

from textual.events import Key
from textual.keys import _character_to_key

from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleOptions

DEADLINE = 20.0
SIZES = ((80, 24), (200, 60))


def make_console(folder, **options):
    """Make a console with its own home and settings, both in ``folder``."""
    environ = {"PWD": os.environ["PWD"], **options.pop("environ", {})}
    environ["SPBENCH_CONFIG"] = str(folder / "console.yaml")
    home = options.pop("home", folder / "home")
    return ConsoleApp(ConsoleOptions(home=home, environ=environ, folder=folder, **options))


async def wait_until(pilot, condition, deadline=DEADLINE):
    """Let the application run until the condition holds."""
    end_time = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end_time, (
            f"not within {deadline:g} s; shown:\n{read_screen(pilot.app)}"
        )
        await pilot.pause(0.02)


def post_keys(app, keys):
    """Post letters or named keys at once, like a terminal with queued input."""
    for key in keys:
        letter = key if len(key) == 1 else None
        app.post_message(Key(_character_to_key(key) if letter else key, letter))


def read_screen(app):
    """Return the text of the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
