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
        return tree.has_focus and tree.selected_path not in (None, document.path)

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
        case = None if marked else self._get_selected_case()
        if marked or case is not None:
            await self._start(marked if case is None else [case.id])

    async def run_with_fault(self) -> None:
        """Ask for a fault and run the selected case with it, to test that it is detected.

        If no suite is open, open the file under the cursor first, so that a case can be selected.
        If the case is too short to notice the fault, ask whether to run it for longer.
        """
        from spbench.tui.suites.running.fault_dialog import FaultDialog

        if not await self._file_actions.require_open(
            "select a case, then press F7 to plant a fault"
        ):
            return
        case = self._get_selected_case()
        if case is None:
            return
        plan = (await self._pane.parse()).plan
        np = None if plan is None else _count_ranks(plan, case.id)
        fault = await self._page.app.push_screen_wait(FaultDialog(case, np))
        if fault is None or not await self._prepare_run():
            return
        if plan is None or await self._confirm_fault(plan, case, fault):
            await self._start([case.id], fault)

    async def _confirm_fault(self, plan: RunPlan, case: Case, fault: str) -> bool:
        """Return whether to run a case with a fault; ask if the fault would be missed."""
        from spbench.tui.suites.running.slow_case import ShortCaseDialog, forecast_slowness
        from spbench_core.catalog.planted_fault import parse_fault

        forecast = await asyncio.to_thread(forecast_slowness, plan, case, parse_fault(fault))
        if forecast is None:
            return True
        is_swept = "iterations=" in case.id  # another number would change the id
        if forecast.iterations is None or is_swept:
            question = f"{case.id} would probably miss {fault}: {forecast.reason}."
            if is_swept:
                question += f" It needs iterations {forecast.iterations}: F3 changes the sweep."
            return await self._page.confirm(question, "Run as it is", "Cancel", enter_is_yes=True)
        override = f"iterations={forecast.iterations}"
        dialog = ShortCaseDialog(case.id, fault, forecast)
        is_confirmed = await self._page.app.push_screen_wait(dialog)
        if dialog.chose_third:
            await self._start([case.id], fault, [override])
        return is_confirmed

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
        self, cases: Sequence[str], fault: str | None = None, overrides: Sequence[str] = ()
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
            fault,
            oversubscribe=rejection is not None,
            overrides=overrides,
            show=admission is StartDecision.AT_ONCE,
        )


def _count_ranks(plan: RunPlan, case: str) -> int:
    """Return the number of ranks of the smallest launch of a case."""
    return min(job.np for job in plan.jobs if any(other.id == case for other in job.cases))
