"""A dialog with all results of one case."""

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

from spbench.record.efficiency import explain_efficiency, format_efficiency
from spbench.record.messages.cases import describe_limit
from spbench.record.metric_names import describe_separation, format_figure_name, format_folded_name
from spbench.record.number_formatting import NOISY, format_exact, format_status, format_value
from spbench.report.model import CasePart
from spbench.suites.expand import format_label
from spbench.tui.advice import name_keys
from spbench.tui.cells import format_value_cell, make_status_span
from spbench.tui.dialogs import Modal
from spbench_core.number_text import format_quantity

NARROW_WIDTH = 110
"""Columns of the terminal below which the table of metrics has fewer columns."""


class CaseScreen(Modal[None]):
    """A dialog with metrics, references, checks and parameters of a case.

    Args:
        case: The case; its samples, measurements and ranks are not shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "app.pop_screen", "Close", id="case.close", tooltip="Close it"),
    ]
    DEFAULT_CSS = """
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
            description = f"  {case.benchmark} on {format_quantity(case.np, 'rank')}"
            yield Static(
                Content.assemble(make_status_span(case.status, case.status_text), description)
            )
            if case.reason:
                yield Static(name_keys(case.reason), classes="reason", markup=False)
            for straggler in case.stragglers:
                yield Static(straggler.sentence, classes="remark", markup=False)
            if case.noisy:
                yield Static(f"{NOISY} noisy: {case.noisy}", classes="remark", markup=False)
            is_narrow = self.app.size.width < NARROW_WIDTH
            for title, content in _list_sections(case, is_narrow=is_narrow):
                yield Static(title, classes="title", markup=False)
                yield Static(content)


def _list_sections(
    case: CasePart, *, is_narrow: bool = False
) -> Iterator[tuple[str, RenderableType]]:
    """Yield title and content of each section that is not empty."""
    tables = (
        ("Metrics", _build_short_metrics(case) if is_narrow else _build_metrics(case)),
        ("References, measured in the same job", _build_references(case)),
        ("Checks", _build_checks(case)),
        ("Expectations", _build_expectations(case)),
        ("Choices", _build_choices(case)),
        ("Parameters", _build_parameters(case)),
    )
    for title, table in tables:
        if table.row_count:
            yield title, table
    explanations = {explain_efficiency(case.efficiency(name)) for name in case.limits} - {""}
    if explanations:
        yield "Efficiency", Text("\n".join(sorted(explanations)))
    if case.launch:
        yield f"Launched by {case.launch.version}", Text(case.launch.command_line)
    if case.traceback:
        yield "Traceback", Text(case.traceback.rstrip())


def _make_table(*columns: str, left: int = 1) -> Table:
    """Return a table with ``left`` columns of text and further columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        is_text = index < left
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text)
    return table


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*map(Text, cells))


def _build_metrics(case: CasePart) -> Table:
    table = _make_table("metric", "n", "min", "median", "p95", "p99", "max", "better", "note")
    for name, metric in case.shown_metrics.items():
        title = format_folded_name(name, metric.unit)
        note = describe_separation(case.benchmark, name)
        better = "" if metric.better == "none" else metric.better
        values = (metric.min, metric.p50, metric.p95, metric.p99, metric.max)
        figures = (format_value(value, metric.unit, name) for value in values)
        _add_row(table, title, str(metric.n), *figures, better, note)
    return table


def _build_short_metrics(case: CasePart) -> Table:
    """Return the metrics with the columns that fit a narrow terminal."""
    table = _make_table("metric", "n", "median", "p95", "max")
    for name, metric in case.shown_metrics.items():
        title = format_folded_name(name, metric.unit)
        if describe_separation(case.benchmark, name):
            title += " (measured separately)"
        values = (metric.p50, metric.p95, metric.max)
        figures = (format_value(value, metric.unit, name) for value in values)
        _add_row(table, title, str(metric.n), *figures)
    return table


def _build_references(case: CasePart) -> Table:
    table = _make_table("metric", "measured by", "reference", "efficiency", left=2)
    for name, reference in case.limits.items():
        efficiency = case.efficiency(name)
        efficiency_text = format_efficiency(efficiency, disturbed=case.disturbed)
        reference_text = format_value_cell(reference.value, reference.unit, name) or "unknown"
        _add_row(
            table,
            format_folded_name(name, reference.unit),
            reference.measured_by,
            reference_text,
            efficiency_text,
        )
    return table


def _build_checks(case: CasePart) -> Table:
    table = _make_table("check", "status", "detail", "largest error", "tolerance", "ranks", left=3)
    for check in case.checks:
        ranks = f"{check.ranks_passed}/{check.ranks_passed + check.ranks_failed}"
        error = "not a number"
        if check.max_abs_error is not None:
            error = format_exact(check.max_abs_error)
        labels = (check.name, format_status(check.status), check.detail)
        _add_row(table, *labels, error, format_exact(check.tolerance), ranks)
    return table


def _build_expectations(case: CasePart) -> Table:
    table = _make_table("metric", "status", "expected", "measured", left=3)
    for expectation in case.expectations:
        metric = case.metrics.get(expectation.metric.partition(".")[0])
        unit = metric.unit if metric is not None else ""
        limit = (
            ""
            if expectation.limit is None
            else f" {format_value(expectation.limit, unit, expectation.metric)}"
        )
        formula = f" = {expectation.expression}" if expectation.expression else ""
        reason = f" ({expectation.reason})" if expectation.reason else ""
        if expectation.reference is not None:
            limit = f" {describe_limit(expectation.model_dump())}"
        expected = f"{expectation.op}{limit}{formula}{reason}"
        value = format_value_cell(expectation.value, unit, expectation.metric) or "nothing"
        _add_row(
            table,
            format_figure_name(expectation.metric, unit),
            format_status(expectation.status),
            expected,
            value,
        )
    return table


def _build_choices(case: CasePart) -> Table:
    table = _make_table("choice", "chosen", "reason", left=3)
    for name, choice in case.choices.items():
        _add_row(table, name, choice.value, choice.reason)
    return table


def _build_parameters(case: CasePart) -> Table:
    table = _make_table("parameter", "value", left=2)
    for name, value in case.params.items():
        _add_row(table, name, "not given" if value is None else format_label(value))
    return table
