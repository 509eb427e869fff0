"""All that was measured of one case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.report.model import CasePart
from spbench.suites.expand import show
from spbench.tui.modal import Modal
from spbench.tui.results.cells import figure, status_span, with_unit
from spbench.tui.signs import signed


class CaseScreen(Modal[None]):
    """A case's metrics, limits, checks, expectations, choices, parameters and launch line.

    Args:
        case: The case; its samples, measurements and ranks are not shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "app.pop_screen", "Close", id="case.close", tooltip="Close it"),
    ]
    DEFAULT_CSS = """
    CaseScreen { align: center middle; }
    CaseScreen > VerticalScroll {
        width: 110; max-width: 96%; height: auto; max-height: 90%; padding: 1 2;
        background: $panel; border: round $primary; border-title-color: $primary;
        scrollbar-size-vertical: 1;
    }
    CaseScreen .title { margin-top: 1; color: $text-primary; text-style: bold; }
    CaseScreen .reason { color: $text-error; }
    """

    def __init__(self, case: CasePart) -> None:
        super().__init__()
        self._case = case

    def compose(self) -> ComposeResult:
        case = self._case
        with VerticalScroll() as scroll:
            scroll.border_title = Content(case.id)
            what = f"  {case.benchmark} on {case.np} ranks"
            yield Static(Content.assemble(status_span(case.status), what))
            if case.reason:
                yield Static(case.reason, classes="reason", markup=False)
            for title, content in _sections(case):
                yield Static(title, classes="title", markup=False)
                yield Static(content)


def _sections(case: CasePart) -> Iterator[tuple[str, RenderableType]]:
    """The title and content of each part that there is something to say in."""
    parts = (
        ("Metrics", _metrics(case)),
        ("Limits, measured in the same job", _limits(case)),
        ("Checks", _checks(case)),
        ("Expectations", _expectations(case)),
        ("Choices", _choices(case)),
        ("Parameters", _parameters(case)),
    )
    yield from ((title, table) for title, table in parts if table.row_count)
    if case.launch:
        yield f"Launched by {case.launch.version}", Text(case.launch.line)
    if case.traceback:
        yield "Traceback", Text(case.traceback.rstrip())


def _table(*columns: str, left: int = 1) -> Table:
    """A table whose first columns are words, the others figures."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < left else "right", no_wrap=at >= left)
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*map(Text, cells))


def _metrics(case: CasePart) -> Table:
    table = _table("metric", "unit", "n", "min", "p50", "p95", "p99", "max", "better", left=2)
    for name, of in case.metrics.items():
        figures = map(figure, (of.min, of.p50, of.p95, of.p99, of.max))
        unit = "" if of.unit == "1" else of.unit
        _row(table, name, unit, str(of.n), *figures, "" if of.better == "none" else of.better)
    return table


def _limits(case: CasePart) -> Table:
    table = _table("metric", "measured by", "limit", left=2)
    for name, limit in case.limits.items():
        _row(table, name, limit.measured_by, with_unit(limit.value, limit.unit) or "unknown")
    return table


def _checks(case: CasePart) -> Table:
    table = _table("check", "came out", "where", "largest error", "tolerance", "ranks", left=3)
    for check in case.checks:
        ranks = f"{check.ranks_passed}/{check.ranks_passed + check.ranks_failed}"
        error = "not a number" if check.max_abs_error is None else f"{check.max_abs_error:.3g}"
        words = (check.name, signed(check.status), check.detail)
        _row(table, *words, error, f"{check.tolerance:.3g}", ranks)
    return table


def _expectations(case: CasePart) -> Table:
    table = _table("metric", "came out", "expected", "measured", left=3)
    for item in case.expectations:
        limit = "" if item.limit is None else f" {item.limit:.6g}"
        how = f" = {item.expression}" if item.expression else ""
        why = f" ({item.reason})" if item.reason else ""
        expected = f"{item.op}{limit}{how}{why}"
        _row(table, item.metric, signed(item.status), expected, figure(item.value) or "nothing")
    return table


def _choices(case: CasePart) -> Table:
    table = _table("what", "chosen", "because", left=3)
    for name, choice in case.choices.items():
        _row(table, name, choice.value, choice.reason)
    return table


def _parameters(case: CasePart) -> Table:
    table = _table("parameter", "value", left=2)
    for name, value in case.params.items():
        _row(table, name, "not given" if value is None else show(value))
    return table
