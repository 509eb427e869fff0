"""Suites of a plan: written, opened and run.

Each function is a step of an action and may ask the user; a worker runs it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.engine.background import run_words
from spbench.errors import SpbenchError
from spbench.planner.output.emission import emitted
from spbench.record.runs.folder import write_whole
from spbench.tui.dialogs import AskLine, Confirm

if TYPE_CHECKING:
    from spbench.tui.plan.page import PlanPage


async def emit(page: PlanPage) -> None:
    """Ask for a file, write the suite of the plan into it, and open it on the Suites page."""
    path = await _written(page)
    if path is None:
        return
    from spbench.tui.suites.page import SuitesPage

    app = page.console_app
    await app.switch_mode("suites")
    suites = app.pages["suites"]
    assert isinstance(suites, SuitesPage)
    suites.open(path)


async def verify(page: PlanPage) -> None:
    """Write the suite of the plan where there is none yet, and run it."""
    path = page.suite or await _written(page)
    if path is None:
        return
    app = page.console_app
    if app.starting:
        page.complain("not started: another run is just being started")
        return
    page.await_run(path)
    app.start_run(run_words(path, app.hosts))


async def _written(page: PlanPage) -> Path | None:
    """Return the file into which the suite was written; None where it was not."""
    planned = page.planned
    if planned is None:
        page.complain("nothing is planned yet: enter plans what the fields say")
        return None
    made = (planned.plan, planned.profile, planned.cluster)
    folder = page.console_app.opening.folder
    try:
        suite = await asyncio.to_thread(emitted, *made, folder / "plan.yaml")
        start = "suites/" if (folder / "suites").is_dir() else ""
        question = f"File of the suite that runs the plan on {suite.ranks} ranks:"
        name = await page.app.push_screen_wait(AskLine(question, f"{start}{suite.suite.name}.yaml"))
        if name is None:
            return None
        path = folder / Path(name).expanduser()
        path = path.with_suffix(path.suffix or ".yaml")
        if not await _may_write(page, path):
            return None
        await asyncio.to_thread(write_whole, path, suite.text)
    except SpbenchError as error:
        page.complain(str(error))
        return None
    page.suite = path
    page.app.notify(f"{path}: {suite.ranks} ranks", title="written", markup=False)
    return path


async def _may_write(page: PlanPage, path: Path) -> bool:
    if not await asyncio.to_thread(path.exists):
        return True
    return await page.app.push_screen_wait(
        Confirm(f"{path} is there. Replace it?", "Replace", "Keep")
    )
