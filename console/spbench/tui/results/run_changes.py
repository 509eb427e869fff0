"""Changes to the recorded runs: notes, baselines made of them, and their removal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.record.runs.history import RunSummary, list_summaries
from spbench.record.runs.notes import parse_note, write_note
from spbench.record.runs.prune import OldRun, find_old_runs, remove_run
from spbench.report.baselines.files import baseline_name, baseline_path, save_baseline
from spbench.report.baselines.making import fault_warnings, launch_warnings, make_baseline
from spbench.report.recorded import load_run
from spbench.tui.dialogs import AskLine
from spbench.tui.page import Page
from spbench_core.quantities import format_quantity


class RunChanges:
    """Asks, changes what was asked for, and says so.

    Args:
        page: The page in front of which it asks.
        home: The folder of the runs.
        changed: Called when the list of the runs is another one.
    """

    def __init__(self, page: Page, home: Path, changed: Callable[[], None]) -> None:
        self._page = page
        self._home = home
        self._changed = changed

    async def edit_note(self, run: RunSummary) -> None:
        """Ask for the note and the tags of a run."""
        line = await self._line(f"Note of {run.id}, with #tags", str(run.note))
        if line is None:
            return
        with self._told("no note"):
            await asyncio.to_thread(write_note, run.folder, parse_note(line))
            self._changed()

    async def save_baseline(self, run: RunSummary) -> None:
        """Ask for a name, and make a baseline of a run."""
        question = f"Name of the baseline that {run.id} becomes"
        name = await self._line(question, run.suite)
        if not name:
            return
        with self._told("no baseline"):
            path = baseline_path(self._home, name)
            if await self._page.confirm_overwrite(path):
                made, left_out = await asyncio.to_thread(_pinned, self._home, name, run)
                words = [f"{made} of {run.id}, in {path}", *left_out]
                self._page.app.notify("\n".join(words), title=f"baseline {name}", markup=False)

    async def remove(self, run: RunSummary) -> None:
        """Remove one run, after a yes; never one that goes on, or that a baseline needs."""
        with self._told("not deleted"):
            found = await asyncio.to_thread(find_old_runs, self._home, [run], 0, 0.0, time.time())
            if not found:
                self._page.show_error(
                    f"{run.id} is still running, or a baseline was made of it; it stays"
                )
                return
            await self._removed(found, f"Delete the run {run.id}, {found[0].bytes:,} bytes?")

    async def prune(self) -> None:
        """Ask how many runs stay, and remove the older ones after a yes."""
        line = await self._line("The newest runs that stay, a number", "100")
        if line is None:
            return
        if not line.isdigit():
            self._page.show_error(f"{line!r} is no number of runs; nothing was deleted")
            return
        with self._told("not deleted"):
            found = await asyncio.to_thread(self._old, int(line))
            if not found:
                self._page.app.notify("no run is older than those, or may go")
                return
            bytes_ = sum(old.bytes for old in found)
            runs = format_quantity(len(found), "run")
            words = f"from {found[0].summary.id} to {found[-1].summary.id}"
            await self._removed(found, f"Delete {runs}, {bytes_:,} bytes, {words}?")

    def _old(self, keep: int) -> list[OldRun]:
        return find_old_runs(self._home, list_summaries(self._home), keep, 0.0, time.time())

    async def _removed(self, found: Sequence[OldRun], question: str) -> None:
        if not await self._page.confirm(question, "Delete", "Keep"):
            return
        gone = 0
        for old in found:
            gone += await asyncio.to_thread(remove_run, self._home, old.summary.folder)
        self._page.app.notify(f"{gone} of {len(found)}", title="deleted")
        self._changed()

    async def _line(self, question: str, text: str) -> str | None:
        return await self._page.app.push_screen_wait(AskLine(question, text, empty=True))

    @contextmanager
    def _told(self, title: str) -> Iterator[None]:
        """Tell the user of what was not possible."""
        try:
            yield
        except SpbenchError as error:
            self._page.show_error(f"{title}: {error}")


def _pinned(home: Path, name: str, run: RunSummary) -> tuple[str, list[str]]:
    """Save a baseline; return its number of cases, the cases left out, and warnings."""
    recorded = load_run(run.folder)
    baseline, left_out = make_baseline(baseline_name(baseline_path(home, name)), recorded)
    save_baseline(home, name, baseline)
    warnings = [*fault_warnings(recorded), *launch_warnings(baseline)]
    return format_quantity(len(baseline.cases), "case"), [*left_out, *warnings]
