"""Start runs of the open suite: all cases, the selected one, or one with a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from spbench.tui.chooser import Choice, Chooser
from spbench.tui.page import Page
from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.file_actions import FileActions
from spbench.tui.suites.parsed_suite import find_rejection_reason
from spbench.tui.suites.text_pane import TextPane
from spbench.tui.suites.tree import SuiteTree
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.suites.case import Case

_FAULT_PLACEHOLDER = "type to find, or a factor: slow=3 takes 3 times as long"


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

        If no suite is open, open the file under the cursor first.
        """
        if self._pane.document is None and not await self._open_selected_file():
            return
        if await self._prepare_run():
            await self._start(self._cases_pane.cases.marked)

    async def _open_selected_file(self) -> bool:
        """Open the file under the cursor of the files; return whether it is open."""
        path = self._page.query_one(SuiteTree).selected_path
        if path is None:
            self._page.show_error("not started: select a suite file first")
            return False
        return await self._file_actions.open(path)

    async def run_case(self) -> None:
        """Run the selected case."""
        if await self._prepare_run() and (case := self._get_selected_case()):
            await self._start([case.id])

    async def run_with_fault(self) -> None:
        """Ask for a fault and run the selected case with it, to test that it is detected."""
        from spbench.suites.inject import list_effective_faults

        case = self._get_selected_case()
        if case is None:
            return
        choices = [_make_fault_choice(case, name) for name in list_effective_faults(case)]
        title = f"Enter plants the fault and runs {case.id}"
        chooser = Chooser(title, choices, _FAULT_PLACEHOLDER, partial(_make_factor_choice, case))
        fault = await self._page.app.push_screen_wait(chooser)
        if fault is not None and await self._prepare_run():
            await self._start([case.id], fault)

    def _get_selected_case(self) -> Case | None:
        """Return the selected case; show an error if there is none."""
        case = self._cases_pane.case
        if case is None:
            self._page.show_error("no case is selected: open a suite, or fix its errors")
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

    async def _start(self, cases: Sequence[str], fault: str | None = None) -> None:
        """Start a run, after a question if this machine has too few cores or memory."""
        document = self._pane.document
        parsed = await self._pane.parse()
        assert document is not None  # checked by `_prepare_run`
        rejection = await asyncio.to_thread(find_rejection_reason, parsed, cases)
        if rejection is not None:
            question = f"Not started: {rejection}. It may stall this machine."
            if not await self._page.confirm(question, "Run anyway", "Cancel"):
                return
        self._page.context.start_suite(
            document.path, cases, fault, oversubscribe=rejection is not None
        )


def _make_fault_choice(case: Case, fault: str) -> Choice:
    """Return the choice of a fault, disabled if nothing in the case can detect it."""
    from spbench.suites.inject import describe_fault_and_finder, explain_undetectable
    from spbench_core.catalog.planted_fault import parse_fault

    planted_fault = parse_fault(fault)
    reason = explain_undetectable(case, planted_fault)
    summary = reason or describe_fault_and_finder(case, planted_fault)
    return Choice(fault, summary, enabled=reason is None)


def _make_factor_choice(case: Case, text: str) -> Choice | None:
    """Return the choice of a typed fault with a factor; None if the text has none."""
    if "=" not in text:
        return None
    try:
        return _make_fault_choice(case, text)
    except ValueError as error:
        return Choice(text, str(error), enabled=False)
