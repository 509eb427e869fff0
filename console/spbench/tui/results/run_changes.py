"""Changes to recorded runs: notes and deletion."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from spbench.errors import UsageError
from spbench.record.runs.history import RunSummary, list_summaries
from spbench.record.runs.notes import RunNote, parse_note, write_note
from spbench.record.runs.prune import OldRun, find_old_runs, remove_run
from spbench.tui.dialogs import AskLine
from spbench.tui.page import Page
from spbench_core.number_text import format_quantity


class RunChanges:
    """Dialogs that change recorded runs.

    Args:
        page: The page with the dialogs.
        home: The folder of the runs.
        on_change: Called after a change of the list of runs.
    """

    def __init__(self, page: Page, home: Path, on_change: Callable[[], None]) -> None:
        self._page = page
        self._home = home
        self._on_change = on_change

    async def edit_note(self, run: RunSummary) -> None:
        """Edit the note and the tags of a run."""
        question = f"Note of {run.id}, with #tags; empty: none"
        dialog = AskLine(question, parse_note, str(run.note))
        note: RunNote | None = await self._page.app.push_screen_wait(dialog)
        if note is None:
            return
        with self._page.show_errors("no note"):
            await asyncio.to_thread(write_note, run.folder, note)
            self._on_change()

    async def remove(self, run: RunSummary) -> None:
        """Delete a run after a question, unless it is running or a baseline needs it."""
        with self._page.show_errors("not deleted"):
            old_runs = await asyncio.to_thread(
                find_old_runs, self._home, [run], 0, 0.0, time.time()
            )
            if not old_runs:
                self._page.show_error(
                    f"{run.id} is still running, or a baseline was made of it; it stays"
                )
                return
            await self._confirm_and_remove(
                old_runs, f"Delete the run {run.id}, {old_runs[0].size_bytes:,} bytes?"
            )

    async def prune(self) -> None:
        """Delete all but the newest runs after a question; the user enters their number."""
        question = "Delete all runs but the newest; their number:"
        dialog = AskLine(question, _parse_run_count, "100", required="a number")
        count: int | None = await self._page.app.push_screen_wait(dialog)
        if count is None:
            return
        with self._page.show_errors("not deleted"):
            old_runs = await asyncio.to_thread(self._find_old_runs, count)
            if not old_runs:
                self._page.app.notify("nothing deleted: no run is older than those, or may go")
                return
            bytes_ = sum(old.size_bytes for old in old_runs)
            runs = format_quantity(len(old_runs), "run")
            span = f"from {old_runs[0].summary.id} to {old_runs[-1].summary.id}"
            await self._confirm_and_remove(old_runs, f"Delete {runs}, {bytes_:,} bytes, {span}?")

    def _find_old_runs(self, keep: int) -> list[OldRun]:
        return find_old_runs(self._home, list_summaries(self._home), keep, 0.0, time.time())

    async def _confirm_and_remove(self, old_runs: Sequence[OldRun], question: str) -> None:
        if not await self._page.confirm(question, "Delete", "Keep"):
            return
        removed = 0
        for old in old_runs:
            removed += await asyncio.to_thread(remove_run, self._home, old.summary.folder)
        subject = f"the run {old_runs[0].summary.id}"
        if len(old_runs) > 1:
            subject = f"{removed} of {len(old_runs)} runs"
        message = f"deleted {subject}" if removed else f"not deleted: {subject}"
        self._page.app.notify(message, markup=False)
        self._on_change()


def _parse_run_count(line: str) -> int:
    if not (line.isascii() and line.isdigit()):
        raise UsageError(f"{line!r} is not a number of runs, such as 100")
    return int(line)
