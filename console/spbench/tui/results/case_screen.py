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

from spbench.record.efficiency import ABOVE_REFERENCE, format_efficiency
from spbench.record.messages.cases import describe_limit
from spbench.record.metric_names import describe_separation, format_figure_name, format_folded_name
from spbench.record.number_formatting import NOISY, format_number, format_value
from spbench.report.model import CasePart
from spbench.suites.expand import format_label
from spbench.tui.cells import format_status, format_value_cell, status_span
from spbench.tui.dialogs import Modal
from spbench_core.quantities import format_quantity


class CaseScreen(Modal[None]):
    """A case's metrics, references, checks, expectations, choices, parameters and launch line.

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
    CaseScreen .remark { color: $text-warning; }
    """

    def __init__(self, case: CasePart) -> None:
        super().__init__()
        self._case = case

    def compose(self) -> ComposeResult:
        case = self._case
        with VerticalScroll() as scroll:
            scroll.border_title = Content(case.id)
            what = f"  {case.benchmark} on {format_quantity(case.np, 'rank')}"
            yield Static(Content.assemble(status_span(case.status), what))
            if case.reason:
                yield Static(case.reason, classes="reason", markup=False)
            for straggler in case.stragglers:
                yield Static(straggler.sentence, classes="remark", markup=False)
            if case.noisy:
                yield Static(f"{NOISY} noisy: {case.noisy}", classes="remark", markup=False)
            for title, content in _sections(case):
                yield Static(title, classes="title", markup=False)
                yield Static(content)


def _sections(case: CasePart) -> Iterator[tuple[str, RenderableType]]:
    """The title and content of each part that there is something to say in."""
    parts = (
        ("Metrics", _metrics(case)),
        ("References, measured in the same job", _references(case)),
        ("Checks", _checks(case)),
        ("Expectations", _expectations(case)),
        ("Choices", _choices(case)),
        ("Parameters", _parameters(case)),
    )
    for title, table in parts:
        if table.row_count:
            yield title, table
    if any((case.efficiency(name) or 0.0) > 1 for name in case.limits):
        yield "Efficiency", Text(ABOVE_REFERENCE)
    if case.launch:
        yield f"Launched by {case.launch.version}", Text(case.launch.command_line)
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
    table = _table("metric", "n", "min", "median", "p95", "p99", "max", "better", "note")
    for name, of in case.shown_metrics.items():
        title = format_folded_name(name, of.unit)
        note = describe_separation(case.benchmark, name)
        better = "" if of.better == "none" else of.better
        values = (of.min, of.p50, of.p95, of.p99, of.max)
        figures = (format_value(value, of.unit, name) for value in values)
        _row(table, title, str(of.n), *figures, better, note)
    return table


def _references(case: CasePart) -> Table:
    table = _table("metric", "measured by", "reference", "efficiency", left=2)
    for name, limit in case.limits.items():
        efficiency = case.efficiency(name)
        shown = format_efficiency(efficiency, disturbed=case.disturbed)
        reference = format_value_cell(limit.value, limit.unit, name) or "unknown"
        _row(table, format_folded_name(name, limit.unit), limit.measured_by, reference, shown)
    return table


def _checks(case: CasePart) -> Table:
    table = _table("check", "came out", "where", "largest error", "tolerance", "ranks", left=3)
    for check in case.checks:
        ranks = f"{check.ranks_passed}/{check.ranks_passed + check.ranks_failed}"
        error = "not a number"
        if check.max_abs_error is not None:
            error = format_number(check.max_abs_error)
        words = (check.name, format_status(check.status), check.detail)
        _row(table, *words, error, format_number(check.tolerance), ranks)
    return table


def _expectations(case: CasePart) -> Table:
    table = _table("metric", "came out", "expected", "measured", left=3)
    for item in case.expectations:
        metric = case.metrics.get(item.metric.partition(".")[0])
        unit = metric.unit if metric is not None else ""
        limit = "" if item.limit is None else f" {format_value(item.limit, unit, item.metric)}"
        how = f" = {item.expression}" if item.expression else ""
        why = f" ({item.reason})" if item.reason else ""
        if item.reference is not None:
            limit = f" {describe_limit(item.model_dump())}"
        expected = f"{item.op}{limit}{how}{why}"
        value = format_value_cell(item.value, unit, item.metric) or "nothing"
        _row(
            table,
            format_figure_name(item.metric, unit),
            format_status(item.status),
            expected,
            value,
        )
    return table


def _choices(case: CasePart) -> Table:
    table = _table("what", "chosen", "because", left=3)
    for name, choice in case.choices.items():
        _row(table, name, choice.value, choice.reason)
    return table


def _parameters(case: CasePart) -> Table:
    table = _table("parameter", "value", left=2)
    for name, value in case.params.items():
        _row(table, name, "not given" if value is None else format_label(value))
    return table
