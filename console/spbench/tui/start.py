"""Opens the console, as the command line asks for it."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice
from spbench.record.runs.folder import working_folder
from spbench.suites.shipped import seen_from
from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleOptions

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder

SWITCH_INTERVAL = 0.001
"""Seconds after which a thread that reads or computes lets the one that answers keys run."""


def open_console(
    *,
    home: Path,
    suite: Path | None = None,
    recorded: RunFolder | None = None,
    speed: float | None = 1.0,
    readonly: bool = False,
    chosen: LaunchChoice = NOTHING_CHOSEN,
) -> int:
    """Show the console until it is closed, and return an exit code.

    Raises:
        UsageError: The folder in which it is opened was deleted.
    """
    # What is named from here is still meant when this folder is moved or deleted.
    folder = Path(working_folder())
    suite = None if suite is None else seen_from(folder, suite)
    if chosen.hostfile is not None:
        chosen = replace(chosen, hostfile=folder / chosen.hostfile)
    opening = ConsoleOptions(
        home=folder / home,
        environ=dict(os.environ),
        folder=folder,
        suite=suite,
        page="suites" if recorded is None else "run",
        launch_choice=chosen,
        recorded=recorded,
        speed=speed,
        readonly=readonly,
    )
    _collect_seldom()
    sys.setswitchinterval(SWITCH_INTERVAL)
    return ConsoleApp(opening).run() or 0


def _collect_seldom() -> None:
    """Let Python look for garbage cycles among all objects less often, and else among few at once.

    With the rows of 4,096 ranks a full collection takes 160 ms, and one of 20,000 new objects 25,
    in which no key is answered.
    """
    gc.freeze()  # what is imported by now stays
    gc.set_threshold(4_000, 10, 200)
