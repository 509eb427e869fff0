"""Writes a run or a comparison to a file that the reader names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import SpbenchError
from spbench.record.runs.folder import write_whole
from spbench.report.compare import RunComparison
from spbench.report.export import export_comparison, export_text
from spbench.report.recorded import RecordedRun
from spbench.tui.dialogs import Confirm
from spbench.tui.results.export_dialog import ExportDialog

if TYPE_CHECKING:
    from spbench.tui.app import ConsoleApp


async def export(app: ConsoleApp, what: RecordedRun | RunComparison) -> None:
    """Ask for format and file, and write; a file that is there is replaced only after a yes.

    Runs in a worker.
    """
    if isinstance(what, RunComparison):
        name, stem = "the comparison", f"{what.a.id}--{what.b.id}"
    else:
        name, stem = f"the run {what.summary.id}", what.summary.id
    chosen = await app.push_screen_wait(ExportDialog(name, app.opening.folder / stem))
    if chosen is None or not await _may_write(app, chosen.path):
        return
    try:
        text = await asyncio.to_thread(_text, what, chosen.kind)
        await asyncio.to_thread(write_whole, chosen.path, text)
    except SpbenchError as error:
        app.notify(str(error), title="not exported", severity="error", timeout=10, markup=False)
    else:
        app.notify(f"written to {chosen.path}", title="exported", markup=False)


async def _may_write(app: ConsoleApp, path: Path) -> bool:
    if not await asyncio.to_thread(path.exists):
        return True
    return await app.push_screen_wait(Confirm(f"{path} is there. Replace it?", "Replace", "Keep"))


def _text(what: RecordedRun | RunComparison, kind: str) -> str:
    if isinstance(what, RunComparison):
        return export_comparison(what, kind)
    return export_text(what, kind)
