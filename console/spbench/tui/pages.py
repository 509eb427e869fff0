"""The list of pages. To add a page, write its package and add an entry here.

Each class is imported when it is first needed, so that the console opens faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spbench.tui.page import Page


@dataclass(frozen=True, slots=True)
class PageEntry:
    """The name of a page, the title of its tab, and a function that imports its class."""

    name: str
    title: str
    load: Callable[[], type[Page]]


def _load_suites() -> type[Page]:
    from spbench.tui.suites.page import SuitesPage

    return SuitesPage


def _load_run() -> type[Page]:
    from spbench.tui.run.page import RunPage

    return RunPage


def _load_results() -> type[Page]:
    from spbench.tui.results.page import ResultsPage

    return ResultsPage


def _load_hosts() -> type[Page]:
    from spbench.tui.hosts.page import HostsPage

    return HostsPage


def _load_plan() -> type[Page]:
    from spbench.tui.plan.page import PlanPage

    return PlanPage


PAGES = (
    PageEntry("suites", "Suites", _load_suites),
    PageEntry("run", "Run", _load_run),
    PageEntry("results", "Results", _load_results),
    PageEntry("hosts", "Hosts", _load_hosts),
    PageEntry("plan", "Plan", _load_plan),
)
"""The pages, in the order of the digits that show them."""
