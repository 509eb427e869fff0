"""Start runs of the open suite: all cases, the selected one, or one with a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spbench.tui.page import Page
from spbench.tui.start_queue import StartDecision
from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.file_actions import FileActions
from spbench.tui.suites.parsed_suite import find_rejection_reason
from spbench.tui.suites.text_pane import TextPane
from spbench.tui.suites.tree import SuiteTree
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan
    from spbench.suites.case import Case


class RunActions:
    """Actions that save the text and start a run of it; each method runs in a worker.

    Args:
        page: The page, which shows dialogs and errors.
        file_actions: Saves the text.
    """

    def __init__(self, page: Page, file_actions: FileActions) -> None:
        self._page = page
        self._file_actions = file_actions

    @property
    def _pane(self) -> TextPane:
        return self._page.query_one(TextPane)

    @property
    def _cases_pane(self) -> CasesPane:
        return self._page.query_one(CasesPane)

    async def run_all(self) -> None:
        """Run the marked cases, or all without marks.

        If no suite is open, or if another one is selected in the focused files, open it first.
        """
        if self.must_open_file() and not await self._open_selected_file():
            return
        if await self._prepare_run():
            await self._start(self._cases_pane.cases.marked)

    def must_open_file(self) -> bool:
        """Return whether a file other than the open suite is to be run."""
        document = self._pane.document
        if document is None:
            return True
        tree = self._page.query_one(SuiteTree)
        return tree.has_focus and tree.selected_path not in (None, document.path, document.source)

    async def _open_selected_file(self) -> bool:
        """Open the file under the cursor of the files; return whether it is open."""
        path = self._page.query_one(SuiteTree).selected_path
        if path is None:
            self._page.show_error("not started: select a suite file first")
            return False
        return await self._file_actions.open(path)

    async def run_case(self) -> None:
        """Run the selected case, or the marked ones.

        If no suite is open, open the selected file first.
        """
        if not await self._file_actions.require_open("select a case, then press F6 to run it"):
            return
        if not await self._prepare_run():
            return
        marked = self._cases_pane.cases.marked
        case = None if marked else await self._find_case_to_run()
        if marked or case is not None:
            await self._start(marked if case is None else [case.id])

    async def run_with_fault(self) -> None:
        """Ask for a fault and run the marked cases, or the selected one, with it.

        If no suite is open, open the file under the cursor first, so that a case can be selected.
        If the case is too short to notice the fault, ask whether to run it for longer.
        """
        from spbench.tui.suites.running.fault_dialog import FaultDialog

        if not await self._file_actions.require_open(
            "select a case, then press F7 to plant a fault"
        ):
            return
        selected = self._get_selected_case()
        if selected is None:
            return
        table = self._cases_pane.cases
        cases = [case for case in table.rows.cases if case.id in table.marked] or [selected]
        only = selected if selected in cases else cases[0]
        plan = (await self._pane.parse()).plan
        dialog = FaultDialog(cases, only, {} if plan is None else _count_ranks(plan))
        fault = await self._page.app.push_screen_wait(dialog)
        if fault is None or not await self._prepare_run():
            return
        names = [case.id for case in cases]
        injects = dialog.list_injects(fault)
        if plan is None:
            await self._start(names, injects)
        elif len(cases) == 1:
            await self._start_with_fault(plan, cases[0], fault)
        elif await self._confirm_missed(plan, dialog.faulty_cases, fault):
            await self._start(names, injects)

    async def _confirm_missed(self, plan: RunPlan, cases: Sequence[Case], fault: str) -> bool:
        """Return whether to plant a fault in several cases; ask if some would miss it."""
        from spbench.tui.suites.running.slow_case import forecast_slowness
        from spbench_core.catalog.planted_fault import parse_fault

        planted = parse_fault(fault)
        reasons = []
        for case in cases:
            forecast = await asyncio.to_thread(forecast_slowness, plan, case, planted)
            if forecast is not None:
                reasons.append(f"{case.id}: {forecast.reason}")
        if not reasons:
            return True
        count = format_quantity(len(reasons), "case")
        question = (
            f"{count} of {len(cases):,} would probably miss {fault}, such as {reasons[0]}. F7 on a "
            "case without marks offers to run it for longer."
        )
        return await self._page.confirm(question, "Run as it is", "Cancel", enter_is_yes=True)

    async def _start_with_fault(self, plan: RunPlan, case: Case, fault: str) -> None:
        """Run a case with a fault; ask if the fault would be missed."""
        from spbench.tui.suites.running.slow_case import ShortCaseDialog, forecast_slowness
        from spbench_core.catalog.planted_fault import parse_fault

        forecast = await asyncio.to_thread(forecast_slowness, plan, case, parse_fault(fault))
        if forecast is None:
            await self._start([case.id], [fault])
            return
        is_swept = "iterations=" in case.id  # another number would change the id
        if forecast.iterations is None or is_swept:
            question = f"{case.id} would probably miss {fault}: {forecast.reason}."
            if is_swept:
                question += f" It needs iterations {forecast.iterations}: F3 changes the sweep."
            if await self._page.confirm(question, "Run as it is", "Cancel", enter_is_yes=True):
                await self._start([case.id], [fault])
            return
        dialog = ShortCaseDialog(case.id, fault, forecast)
        is_confirmed = await self._page.app.push_screen_wait(dialog)
        if is_confirmed or dialog.chose_third:
            overrides = [f"iterations={forecast.iterations}"] if dialog.chose_third else []
            await self._start([case.id], [fault], overrides)

    async def _find_case_to_run(self) -> Case | None:
        """Return the selected case of a valid text; show an error if there is none.

        The table may still show the errors of the text before.
        """
        position = self._cases_pane.find_selected()
        if self._cases_pane.case is None and position is not None:
            cases = (await self._pane.parse()).cases
            return next((case for case in cases if case.name == position.name), None)
        return self._get_selected_case()

    def _get_selected_case(self) -> Case | None:
        """Return the selected case; show an error if there is none."""
        case = self._cases_pane.case
        if case is None and self._cases_pane.is_empty and not self._pane.error_count:
            self._page.show_error("no case is selected: the suite has no cases yet; F4 adds one")
        elif case is None:
            self._page.show_error("no case is selected: select one, or fix the errors of the text")
        return case

    async def _prepare_run(self) -> bool:
        """Save the text and return whether it can be run; show an error if not."""
        pane = self._pane
        if pane.document is None:
            self._page.show_error("not started: no suite is open")
            return False
        parsed = await pane.parse()
        if parsed.lacks_cases:
            self._page.show_error("not started: the suite has no cases; F4 adds one")
            return False
        if parsed.problems:
            errors = format_quantity(len(parsed.problems), "error")
            self._page.show_error(f"not started: {errors} to fix in the text first")
            return False
        if pane.has_changes or pane.document.stored is None:
            return await self._file_actions.save()
        if await asyncio.to_thread(pane.document.is_stale):
            self._page.show_error(
                "not started: the file has changed on disk; reload it (Ctrl+R) or save (Ctrl+S)"
            )
            return False
        return True

    async def _start(
        self, cases: Sequence[str], faults: Sequence[str] = (), overrides: Sequence[str] = ()
    ) -> None:
        """Start a run, after a question if this machine has too few cores or memory."""
        document = self._pane.document
        parsed = await self._pane.parse()
        assert document is not None  # checked by `_prepare_run`
        self._pane.forget_step()
        rejection = await asyncio.to_thread(find_rejection_reason, parsed, cases)
        if rejection is not None:
            question = f"Not started: {rejection}. It may stall this machine."
            if not await self._page.confirm(question, "Run anyway", "Cancel"):
                return
        names = ", ".join(cases[:1] if len(cases) == 1 else ())
        request = f"{document.path.name} ({names})" if names else document.path.name
        admission = await self._page.context.start_queue.admit(request)
        if admission is StartDecision.REJECTED:
            return
        self._page.context.start_suite(
            document.path,
            cases,
            faults,
            oversubscribe=rejection is not None,
            overrides=overrides,
            show=admission is StartDecision.AT_ONCE,
        )


def _count_ranks(plan: RunPlan) -> dict[str, int]:
    """Return the number of ranks of the smallest launch of each case, by id."""
    counts: dict[str, int] = {}
    for job in plan.jobs:
        for case in job.cases:
            counts[case.id] = min(job.np, counts.get(case.id, job.np))
    return counts
