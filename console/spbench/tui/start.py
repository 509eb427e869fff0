"""Start of the console with the options of the command line."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from spbench.record.runs.folder import find_working_folder
from spbench.suites.shipped import resolve_suite_path
from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleOptions

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder

SWITCH_INTERVAL = 0.001
"""Time after which a working thread yields to the thread that handles keys, in seconds."""


def open_tui(
    *,
    home: Path,
    suite: Path | None = None,
    recorded: RunFolder | None = None,
    speed: float | None = 1.0,
    readonly: bool = False,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
) -> int:
    """Show the console until it is closed, and return its exit code.

    Raises:
        UsageError: The working folder was deleted.
    """
    # Absolute paths, which stay valid when the working folder changes.
    folder = Path(find_working_folder())
    suite = None if suite is None else resolve_suite_path(folder, suite)
    if launch_choice.hostfile is not None:
        launch_choice = replace(launch_choice, hostfile=folder / launch_choice.hostfile)
    options = ConsoleOptions(
        home=folder / home,
        environ=dict(os.environ),
        folder=folder,
        suite=suite,
        page="suites" if recorded is None else "run",
        launch_choice=launch_choice,
        recorded=recorded,
        speed=speed,
        readonly=readonly,
    )
    sys.setswitchinterval(SWITCH_INTERVAL)
    return ConsoleApp(options, on_opened=_reduce_garbage_collection).run() or 0


def _reduce_garbage_collection() -> None:
    """Make full garbage collections rarer, and collections of new objects smaller.

    It is called when the first page is shown. Until then the command line has collections disabled.
    No key is handled during a collection. With the rows of 4,096 ranks a full collection takes
    160 ms, and a collection of 20,000 new objects 25 ms.
    """
    gc.freeze()  # imported modules are never freed
    gc.set_threshold(4_000, 10, 200)
    gc.enable()
