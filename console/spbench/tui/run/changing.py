"""Cancelling the watched run, and starting it again: both ask first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.engine import background
from spbench.errors import SpbenchError
from spbench.record.runs.folder import RunFolder
from spbench.tui.dialogs import Confirm

if TYPE_CHECKING:
    from spbench.tui.app import ConsoleApp


def cancel(app: ConsoleApp, folder: RunFolder) -> None:
    """Ask, and let the run end as by Ctrl-C."""
    question = f"Cancel the run {folder.id}? Its ranks are ended; what was measured is kept."
    _ask(app, Confirm(question, "Cancel it", "Let it run"), lambda: _cancel(app, folder))


def again(app: ConsoleApp, folder: RunFolder) -> None:
    """Ask, and start a run with the same words."""
    more = " The one that is watched goes on." if app.run_goes_on() else ""
    question = f"Start {folder.id} again, as a new run?{more}"
    _ask(app, Confirm(question, "Start", "Leave it"), lambda: _again(app, folder))


def startable(folder: RunFolder, here: Path) -> bool:
    """Whether the suite of a run is there, so that it can be started again; looks at files."""
    file = folder.read_json("run.json").get("file")
    return isinstance(file, str) and ((background.started_in(folder) or here) / file).is_file()


def _ask(app: ConsoleApp, question: Confirm, do: Callable[[], Awaitable[None]]) -> None:
    def answer(yes: bool | None) -> None:
        if yes:
            app.run_worker(_told(app, do), group="changing", exit_on_error=False)

    app.push_screen(question, answer)


async def _told(app: ConsoleApp, do: Callable[[], Awaitable[None]]) -> None:
    try:
        await do()
    except SpbenchError as error:
        app.notify(str(error), severity="error", timeout=10, markup=False)


async def _cancel(app: ConsoleApp, folder: RunFolder) -> None:
    await asyncio.to_thread(background.cancel, folder)
    app.notify("the run is being cancelled", timeout=4)


async def _again(app: ConsoleApp, folder: RunFolder) -> None:
    words = await asyncio.to_thread(background.again, folder)
    app.start_run(words, await asyncio.to_thread(background.started_in, folder))
