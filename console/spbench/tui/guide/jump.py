"""The jump to a suite, run, host or case that the user finds by its name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

from textual.app import App
from textual.widgets import Input

from spbench.suites.shipped import PREFIX
from spbench.tui.context import ConsoleContext
from spbench.tui.guide.destinations import (
    Destination,
    DestinationKind,
    DestinationReader,
    list_run_cases,
    list_suite_cases,
)
from spbench.tui.guide.jump_dialog import JumpDialog
from spbench.tui.hosts.page import HostsPage
from spbench.tui.hosts.panes import HostsPane
from spbench.tui.page import Page, show_page
from spbench.tui.panes import FilterPane
from spbench.tui.results.cases_view import CasesView
from spbench.tui.results.page import ResultsPage
from spbench.tui.results.runs_pane import RunsPane
from spbench.tui.results.views import View, ViewTab
from spbench.tui.run.page import RunPage
from spbench.tui.suites.document import SuiteDocument
from spbench.tui.suites.page import SuitesPage
from spbench.tui.widgets.line_table import LineTable

ROW_DEADLINE = 10.0
"""Time to wait until a page shows a destination that was read from the same files, in seconds."""
_POLL_INTERVAL = 0.03

AnyPage = TypeVar("AnyPage", bound=Page)


async def jump(
    app: App[Any],
    context: ConsoleContext,
    pages: dict[str, Page],
    reader: DestinationReader,
    text: str = "",
    kind: DestinationKind | None = None,
) -> None:
    """Ask for a destination and go there.

    Args:
        app: The application.
        context: The state that the pages share.
        pages: The pages that were shown so far, by name.
        reader: Reads the destinations on disk.
        text: The words that the dialog starts with.
        kind: The kind of destination to list; None for all.
    """
    cases: list[Destination] = []
    owners: set[str] = set()
    suites_page = pages.get(SuitesPage.NAME)
    if isinstance(suites_page, SuitesPage) and suites_page.is_mounted:
        cases += _list_open_cases(suites_page)
        owners |= _find_open_owners(suites_page.text_pane.document)
    if context.feed is not None:
        cases += list_run_cases(context.feed)
        owners.add(context.feed.folder.id)

    def read() -> list[Destination]:
        # The cases of the open suite and of the watched run are listed as their pages show them.
        return [destination for destination in reader.read() if destination.owner not in owners]

    destination = await app.push_screen_wait(JumpDialog(cases, read, text, kind))
    if destination is not None and not await _go_to(app, destination):
        app.notify(f"{destination.name} is no longer there", severity="warning", markup=False)


def _list_open_cases(page: SuitesPage) -> list[Destination]:
    """Return the cases of the open suite; none if no suite is open."""
    document = page.text_pane.document
    if document is None:
        return []
    cases = page.cases_pane.cases.rows.cases
    return list_suite_cases(document.path, page.context.options.folder, cases)


def _find_open_owners(document: SuiteDocument | None) -> set[str]:
    """Return the keys under which the open suite is on disk."""
    if document is None:
        return set()
    owners = {str(document.path)}
    if document.is_unsaved_copy:
        owners.add(f"{PREFIX}{document.path.stem}")
    return owners


async def _go_to(app: App[Any], destination: Destination) -> bool:
    """Show a destination; return whether it is still there."""
    if destination.kind is DestinationKind.SUITE:
        await (await _show(app, SuitesPage)).wait_for_opening(Path(destination.key))
        return True  # if it is not open, the page shows the reason
    if destination.kind is DestinationKind.RUN:
        runs = (await _show(app, ResultsPage)).query_one(RunsPane)
        return await _select(runs.table, destination.name, runs)
    if destination.kind is DestinationKind.HOST:
        return await _select_host(await _show(app, HostsPage), destination)
    if destination.key == RunPage.NAME:
        run_page = await _show(app, RunPage)
        return await _select(run_page.query_one("#cases", LineTable), destination.name)
    if destination.key == ResultsPage.NAME:
        return await _select_recorded_case(await _show(app, ResultsPage), destination)
    suites_page = await _show(app, SuitesPage)
    if destination.owner and not await suites_page.wait_for_opening(Path(destination.owner)):
        return True  # the page shows the reason, or the user keeps unsaved text
    cases = suites_page.cases_pane.cases
    is_there = await _select(cases.table, destination.name, cases)
    if is_there:
        suites_page.cases_pane.post_selection()  # the editor follows a cursor that did not move
    return is_there


async def _select_recorded_case(page: ResultsPage, destination: Destination) -> bool:
    runs = page.query_one(RunsPane)
    if not await _select(runs.table, destination.owner, runs):
        return False
    page.post_message(ViewTab.Clicked(View.CASES))
    cases = page.query_one(CasesView)
    end_time = time.monotonic() + ROW_DEADLINE
    while cases.run is None or cases.run.summary.id != destination.owner:
        if time.monotonic() > end_time or not page.is_mounted:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    return await _select(cases.table, destination.name)


async def _show(app: App[Any], page: type[AnyPage]) -> AnyPage:
    shown = await show_page(app, page.NAME)
    assert isinstance(shown, page)
    return shown


async def _select_host(page: HostsPage, destination: Destination) -> bool:
    sources = page.query_one("#sources", LineTable)
    if not await _select(sources, destination.key):
        return False
    hosts = page.query_one(HostsPane)
    return await _select(hosts.table, destination.name, hosts)


async def _select(table: LineTable, key: Hashable, pane: FilterPane | None = None) -> bool:
    """Move the cursor to a row as soon as the table has it; return whether it came.

    A filter of the pane around the table is left, since it may hide the row.
    """
    end_time = time.monotonic() + ROW_DEADLINE
    while key not in table.matching_keys:
        if pane is not None and pane.query_one(Input).value:
            pane.action_leave_filter()
        if time.monotonic() > end_time or not table.is_mounted:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    table.move_to(key)
    table.focus()
    return True
