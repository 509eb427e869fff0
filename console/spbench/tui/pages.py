"""The pages, in the order of their digits. A further page is a package and one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spbench.tui.page import Page


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page: its tab's title, and its class, whose module is loaded when it is first needed."""

    name: str
    title: str
    load: Callable[[], type[Page]]


def _suites() -> type[Page]:
    from spbench.tui.suites.page import SuitesPage

    return SuitesPage


def _run() -> type[Page]:
    from spbench.tui.run.page import RunPage

    return RunPage


def _results() -> type[Page]:
    from spbench.tui.results.page import ResultsPage

    return ResultsPage


def _hosts() -> type[Page]:
    from spbench.tui.hosts.page import HostsPage

    return HostsPage


def _plan() -> type[Page]:
    from spbench.tui.plan.page import PlanPage

    return PlanPage


PAGES = (
    PageEntry("suites", "Suites", _suites),
    PageEntry("run", "Run", _run),
    PageEntry("results", "Results", _results),
    PageEntry("hosts", "Hosts", _hosts),
    PageEntry("plan", "Plan", _plan),
)
"""In the order of their digits."""
