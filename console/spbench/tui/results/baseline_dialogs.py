"""Dialogs on baselines: choose one to compare with, or make one of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.record.runs.history import RunSummary
from spbench.report.baselines.creation import make_baseline
from spbench.report.baselines.files import baseline_name, baseline_path, save_baseline
from spbench.report.previous_times import list_runs_of_suite
from spbench.report.recorded import load_run
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import AskLine, FewLaunchesDialog
from spbench.tui.page import Page
from spbench.tui.results.compared_sides import find_needed_launches
from spbench.tui.results.library import RunLibrary
from spbench.tui.results.run_starts import explain_running
from spbench_core.events.statuses import RunStatus
from spbench_core.number_text import format_quantity


class BaselineDialogs:
    """Dialogs that choose or make a baseline.

    Args:
        page: The page with the dialogs.
        library: The runs and baselines.
    """

    def __init__(self, page: Page, library: RunLibrary) -> None:
        self._page = page
        self._library = library
        self._home = library.home

    async def choose(self, run: RunSummary) -> str | None:
        """Return the name of a baseline; without any, report the key that makes one.

        The only baseline of the run's suite needs no choice.
        """
        origins = await asyncio.to_thread(self._library.baselines)
        if not origins:
            readonly = self._page.context.readonly
            remedy = "`spbench baseline set`" if readonly else "B"
            self._page.app.notify(
                f"there is no baseline yet; {remedy} sets one, and b compares with it",
                severity="warning",
                markup=False,
            )
            return None
        of_suite = [origin for origin in origins if origin.suite in (run.suite, "")]
        if len(of_suite) == 1:
            name = of_suite[0].name
            if of_suite[0].run != run.id:  # else the view has the reason
                self._page.app.notify(
                    f"compared with {name}, the only baseline of {run.suite}; "
                    "c compares with a run again",
                    markup=False,
                )
            return name
        # The first one is preselected: the newest with enough launches.
        ordered = sorted(of_suite or origins, key=lambda origin: origin.run, reverse=True)
        ordered.sort(key=lambda origin: not origin.has_launches)
        choices = [Choice(origin.name, origin.text) for origin in ordered]
        return await self._page.app.push_screen_wait(Chooser("Compare with", choices))

    def find_other_run(
        self, name: str, run: RunSummary, runs: Sequence[RunSummary]
    ) -> RunSummary | None:
        """Return the newest other run of the suite if a baseline has only this run."""
        with suppress(SpbenchError):  # the view shows why a baseline cannot be read
            if self._library.find_run_of_baseline(name, [run]) is not None:
                others = (other for other in list_runs_of_suite(runs, run) if other.id != run.id)
                return next((run for run in others if run.status != RunStatus.RUNNING), None)
        return None

    async def make(self, run: RunSummary) -> None:
        """Make a baseline of a run under a name that the user enters."""
        if run.status == RunStatus.RUNNING:
            self._page.app.notify(explain_running("B"), severity="warning")
        else:
            await self._make(run)

    async def _make(self, run: RunSummary) -> None:
        """Make a baseline; if later runs cannot be compared with it, ask first."""

        def parse(line: str) -> tuple[str, Path]:
            return line, baseline_path(self._home, line)

        doubt = await asyncio.to_thread(_find_doubt, run)
        doubt_question = f"{doubt} Make a baseline of it anyway?"
        if doubt and not await self._page.confirm(doubt_question, "Make", "Cancel"):
            return
        launches = None if doubt else await asyncio.to_thread(_find_needed_launches, run)
        if launches is not None and not await self._accept_few_launches(run, launches):
            return
        question = f"Name of the baseline that {run.id} becomes:"
        dialog = AskLine(question, parse, run.suite, required="a name")
        name_and_path = await self._page.app.push_screen_wait(dialog)
        if name_and_path is None:
            return
        with self._page.show_errors("no baseline"):
            name, path = name_and_path
            if await self._page.confirm_overwrite(path):
                lines = await asyncio.to_thread(_save_baseline, self._home, name, run)
                self._page.app.notify("\n".join(lines), title=f"baseline {name}", markup=False)

    async def _accept_few_launches(self, run: RunSummary, launches: int) -> bool:
        """Return whether to make a baseline with too few launches, or run it again first."""
        counts = run.count_passed()
        for_cases = f" for its {format_quantity(counts[1], 'case')}" if counts else ""
        question = (
            f"Run {run.id} has fewer than the {launches} launches of each case that a comparison "
            f"with it needs{for_cases}. Run it again with enough of them first? B then makes a "
            "baseline of the new run."
        )
        dialog = FewLaunchesDialog(question, launches)
        is_accepted = await self._page.app.push_screen_wait(dialog)
        if dialog.chose_third:
            await self._page.start_again(run.folder, launches)
        return is_accepted


def _find_doubt(run: RunSummary) -> str:
    """Return why a run should not become a baseline; empty if it may."""
    if run.faults:
        faults = ", ".join(run.faults)
        return f"Run {run.id} was made with the planted fault {faults}, which changes its times."
    if run.status != RunStatus.PASSED:
        return f"Run {run.id} did not pass (status: {run.status})."
    return ""


def _find_needed_launches(run: RunSummary) -> int | None:
    """Return the launches that a comparison needs; None if the run has them."""
    try:
        return find_needed_launches(load_run(run.folder).cases.values())
    except SpbenchError:
        return None  # the error is shown when the baseline is saved


def _save_baseline(home: Path, name: str, run: RunSummary) -> list[str]:
    """Save a baseline; return a text on its number of cases and the cases left out."""
    baseline, left_out = make_baseline(
        baseline_name(baseline_path(home, name)), load_run(run.folder)
    )
    save_baseline(home, name, baseline)
    return [f"{format_quantity(len(baseline.cases), 'case')} of {run.id}", *left_out]
