"""Opens a case with what its run's report tells of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spbench.errors import SpbenchError
from spbench.report.export import export_text
from spbench.tui.results.case_screen import CaseScreen

if TYPE_CHECKING:
    from spbench.report.recorded import RecordedCase, RecordedRun
    from spbench.tui.app import ConsoleApp


async def open_case(app: ConsoleApp, run: RecordedRun, case: RecordedCase) -> None:
    """Show all of a case over the page."""
    told: Mapping[str, Any] = {}
    try:
        told = await asyncio.to_thread(_told, run, case.id)
    except SpbenchError as error:
        app.notify(str(error), severity="warning", markup=False)
    if app.is_running:
        app.push_screen(CaseScreen(case, told))


def _told(run: RecordedRun, case_id: str) -> Mapping[str, Any]:
    report = json.loads(export_text(run, "json"))
    found: Mapping[str, Any] = next((c for c in report["cases"] if c["id"] == case_id), {})
    return found
