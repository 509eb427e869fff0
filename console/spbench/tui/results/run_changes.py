"""Changes to recorded runs: notes, baselines and deletion."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spbench.errors import SpbenchError, UsageError
from spbench.record.runs.history import RunSummary, list_summaries
from spbench.record.runs.notes import RunNote, parse_note, write_note
from spbench.record.runs.prune import OldRun, find_old_runs, remove_run
from spbench.report.baselines.creation import fault_warnings, launch_warnings, make_baseline
from spbench.report.baselines.files import baseline_name, baseline_path, save_baseline
from spbench.report.previous_times import list_runs_of_suite
from spbench.report.recorded import load_run
from spbench.tui.advice import name_keys
from spbench.tui.dialogs import AskLine
from spbench.tui.page import Page
from spbench_core.events.statuses import RunStatus
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
        with self._show_errors("no note"):
            await asyncio.to_thread(write_note, run.folder, note)
            self._on_change()

    async def offer_first_baseline(self, run: RunSummary, runs: Sequence[RunSummary]) -> None:
        """Offer to make the first baseline of a run, or of a better one of its suite.

        Args:
            run: The run under the cursor.
            runs: All runs, the newest first.
        """
        if self._page.context.readonly:
            self._page.app.notify("there is no baseline yet", severity="warning")
            return
        candidates = [run, *list_runs_of_suite(runs, run)]
        sound = (
            other for other in candidates if other.status == RunStatus.PASSED and not other.faults
        )
        chosen = next(sound, None)
        if chosen is None:
            self._page.show_error(
                f"every run of {run.suite} failed or has a planted fault; run it again, or press B "
                f"to make a baseline of {run.id} anyway"
            )
            return
        remark = "" if chosen is run else f", the newest run of {run.suite} that passed"
        await self._name_and_save(
            chosen, f"There is no baseline yet. Make one of {chosen.id}{remark}"
        )

    async def save_baseline(self, run: RunSummary) -> None:
        """Save a baseline of a run under a name that the user enters.

        If times of the run are missing or not usual ones, a question comes first.
        """
        doubt = _find_doubt(run)
        if doubt:
            question = f"{doubt} Make a baseline of it anyway?"
            if not await self._page.confirm(question, "Make", "Cancel"):
                return
        await self._name_and_save(run, f"Name of the baseline that {run.id} becomes")

    async def _name_and_save(self, run: RunSummary, question: str) -> None:
        def parse(line: str) -> tuple[str, Path]:
            return line, baseline_path(self._home, line)

        dialog = AskLine(question, parse, run.suite, required="a name")
        name_and_path = await self._page.app.push_screen_wait(dialog)
        if name_and_path is None:
            return
        with self._show_errors("no baseline"):
            name, path = name_and_path
            if await self._page.confirm_overwrite(path):
                case_count, notes = await asyncio.to_thread(_save_baseline, self._home, name, run)
                lines = [f"{case_count} of {run.id}, in {path}", *map(name_keys, notes)]
                self._page.app.notify("\n".join(lines), title=f"baseline {name}", markup=False)

    async def remove(self, run: RunSummary) -> None:
        """Delete a run after a question, unless it is running or a baseline needs it."""
        with self._show_errors("not deleted"):
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
        with self._show_errors("not deleted"):
            old_runs = await asyncio.to_thread(self._find_old_runs, count)
            if not old_runs:
                self._page.app.notify("no run is older than those, or may go")
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
        self._page.app.notify(f"{removed} of {len(old_runs)}", title="deleted")
        self._on_change()

    @contextmanager
    def _show_errors(self, title: str) -> Iterator[None]:
        """Show an error message if a change fails."""
        try:
            yield
        except SpbenchError as error:
            self._page.show_error(f"{title}: {error}")


def _parse_run_count(line: str) -> int:
    if not (line.isascii() and line.isdigit()):
        raise UsageError(f"{line!r} is not a number of runs, such as 100")
    return int(line)


def _find_doubt(run: RunSummary) -> str:
    """Return why a run should not become a baseline; empty if it may."""
    if run.faults:
        faults = ", ".join(run.faults)
        return f"Run {run.id} was made with the planted fault {faults}, which changes its times."
    if run.status in (RunStatus.PASSED, RunStatus.RUNNING):
        return ""
    return f"Run {run.id} did not pass (status: {run.status})."


def _save_baseline(home: Path, name: str, run: RunSummary) -> tuple[str, list[str]]:
    """Save a baseline; return its number of cases, the cases left out, and warnings."""
    recorded = load_run(run.folder)
    baseline, left_out = make_baseline(baseline_name(baseline_path(home, name)), recorded)
    save_baseline(home, name, baseline)
    warnings = [*fault_warnings(recorded), *launch_warnings(baseline)]
    return format_quantity(len(baseline.cases), "case"), [*left_out, *warnings]
