"""Runs started from the Suites page: of the whole suite, of one case, with a planted fault."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spbench.engine.background import run_words
from spbench.suites.case import Case
from spbench.suites.inject import faults_of
from spbench.tui.suites.chooser import Choice, Chooser
from spbench.tui.suites.problems import counted
from spbench.tui.suites.saving import save
from spbench_core.catalog import COMMON_FAULTS

if TYPE_CHECKING:
    from spbench.tui.suites.page import SuitesPage


async def run_all(page: SuitesPage) -> None:
    """Run the suite."""
    if await _ready(page):
        _start(page)


async def run_case(page: SuitesPage) -> None:
    """Run the chosen case alone."""
    if await _ready(page) and (case := chosen_case(page)):
        _start(page, case)


async def run_with_fault(page: SuitesPage) -> None:
    """Ask for a fault, and run the chosen case with it: the run must find it."""
    case = chosen_case(page)
    if case is None:
        return
    own = f"the last rank does so in {case.benchmark}; a check must find it"
    choices = [Choice(name, COMMON_FAULTS.get(name, own)) for name in faults_of(case)]
    title = f"Fault to plant in {case.id}; the run must find it"
    fault = await page.app.push_screen_wait(Chooser(title, choices))
    if fault is not None and await _ready(page):
        _start(page, case, fault)


def chosen_case(page: SuitesPage) -> Case | None:
    """Return the chosen case; where there is none, say so."""
    case = page.cases_pane.case
    if case is None:
        page.complain("no case is chosen: open a suite, or mend its errors")
    return case


async def _ready(page: SuitesPage) -> bool:
    """Save the text; a text with errors cannot run."""
    pane = page.text_pane
    if pane.document is None:
        page.complain("no suite is open to be run")
        return False
    problems = (await pane.reading()).problems
    if problems:
        page.complain(f"not started: {counted(len(problems), 'error')} to mend in the text first")
        return False
    if pane.changed:
        return await save(page)
    if await asyncio.to_thread(pane.document.is_stale):
        page.complain("not started: the file has changed on disk; open it again, or save over it")
        return False
    return True


def _start(page: SuitesPage, case: Case | None = None, fault: str | None = None) -> None:
    app, document = page.console_app, page.text_pane.document
    assert document is not None  # else it was not ready
    app.start_run(run_words(document.path, app.hosts, case=case.id if case else None, inject=fault))
