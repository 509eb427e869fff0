"""Runs that the console begins to watch: started here, still going on, or recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.engine import background
from spbench.errors import FailedRunError, SpbenchError
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.follow import recorded_events
from spbench.tui.dialogs import Confirm

if TYPE_CHECKING:
    from spbench.tui.app import ConsoleApp

LOOK = 0.05
"""Seconds between two looks for the folder of a run that was started."""


async def launch(app: ConsoleApp, words: tuple[str, ...], where: Path) -> None:
    """Start a run and watch it as soon as it has a folder; say why where it gets none."""
    opening = app.opening
    try:
        launched = await asyncio.to_thread(
            background.start, words, opening.home, opening.environ, where
        )
        app.watch_run(await _folder_of(launched), show=False)
    except SpbenchError as error:
        app.notify(str(error), title="not started", severity="error", timeout=15, markup=False)
    finally:
        app.starting = False


async def _folder_of(launched: background.Launched) -> RunFolder:
    while True:
        ended = launched.ended() is not None
        folder = await asyncio.to_thread(launched.folder)
        if folder is not None:
            return folder
        if ended:
            raise FailedRunError(launched.complaint() or "the run ended before it had begun")
        await asyncio.sleep(LOOK)


def open_recorded(app: ConsoleApp, folder: RunFolder, speed: float | None) -> None:
    """Play a recorded run again."""
    from spbench.tui.feed import ReplaySource

    app.watch_run(folder, ReplaySource(recorded_events(folder.events), speed))


def offer_to_attach(app: ConsoleApp) -> None:
    """Ask whether to watch a run that is still going on, where there is one."""
    app.run_worker(_offer(app), group="attach", exit_on_error=False)


async def _offer(app: ConsoleApp) -> None:
    runs = await asyncio.to_thread(background.running, app.opening.home)
    if not runs:
        return
    folder = runs[-1]
    more = f" ({len(runs)} runs are going on; the Results page has them all)"
    question = f"The run {folder.id} is still going on. Watch it?"

    def watch(yes: bool | None) -> None:
        if yes:
            app.watch_run(folder)

    app.push_screen(Confirm(question + (more if len(runs) > 1 else ""), "Watch", "Not now"), watch)
