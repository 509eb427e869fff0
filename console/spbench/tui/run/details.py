"""The details of a case or a rank, in a dialog over the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, ClassVar, NamedTuple

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.record.case_state import CaseState
from spbench.record.efficiency import compute_efficiency, explain_efficiency, format_efficiency
from spbench.record.judge import describe_other_failed_checks, divide_by_limit
from spbench.record.messages.cases import describe_repeats
from spbench.record.metric_names import (
    SEPARATELY,
    find_iteration_name,
    format_metric_name,
    name_separate_metrics,
)
from spbench.record.noise import is_disturbed
from spbench.record.number_formatting import (
    format_percent,
    format_size,
    format_status,
    format_value,
)
from spbench.record.outliers.links import is_link
from spbench.record.planted_faults import find_fault_outcome
from spbench.record.runs.job_output import read_job_output
from spbench.record.shares import compute_all_shares
from spbench.stats.summary import median
from spbench.suites.expand import format_label
from spbench.tui.dialogs import Modal
from spbench.tui.feed import Feed
from spbench.tui.run.case_rows import explain_signs
from spbench.tui.run.panes.charts import BarGroup, compute_case_bars, describe_missing_bars
from spbench.tui.widgets.stacked_bars import StackedBars
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.default_texts import format_default_texts
from spbench_core.events.statuses import CaseStatus, CheckOutcome
from spbench_core.number_text import format_quantity

Line = tuple[str, str]
"""A line of details: title and text."""
REFRESH_INTERVAL = 1.0
"""Seconds between two readings of details: numbers that change faster could not be read."""


class Details(NamedTuple):
    """The content of a dialog: titles and texts, then bars, then verbatim output."""

    lines: Sequence[Line]
    bars: Sequence[BarGroup]
    verbatim: str


class DetailsScreen(Modal[None]):
    """A dialog with details of a run, which the page keeps up to date.

    Args:
        title: The title of the dialog.
        feed: The run.
        read: Returns the present details.
    """

    HELP = """\
reference: simpler operations with the same work, in the same job. efficiency: reference / time.
expected: a limit of the suite, and the value that was measured.
The bars show the parts of an iteration, of all ranks and of single ranks.
If the case failed, the output of its job is at the end."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "app.pop_screen", "Close", id="details.close"),
        Binding("y", "copy", "Copy", id="details.copy", tooltip="Copy it all"),
    ]
    DEFAULT_CSS = """
    DetailsScreen Static { height: auto; }
    DetailsScreen .bars { height: auto; }
    DetailsScreen StackedBars { height: auto; margin-top: 1; }
    """

    def __init__(self, title: str, feed: Feed, read: Callable[[], Details]) -> None:
        super().__init__()
        self._title = title
        self._feed = feed
        self._read = read
        self._details = read()
        self._version = self._find_version()
        self._due = monotonic() + REFRESH_INTERVAL

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = Content(self._title)
            frame.border_subtitle = Content("y copies  Esc closes")
            with VerticalScroll():
                yield Static(self._build_table(), id="lines")
                yield Vertical(*self._make_charts(), classes="bars")
                verbatim = Static(self._details.verbatim, markup=False, classes="verbatim")
                verbatim.display = bool(self._details.verbatim)
                yield verbatim

    def refresh_details(self) -> None:
        """Show the present details, if the run has changed."""
        version = self._find_version()
        if not self.is_mounted or version == self._version or monotonic() < self._due:
            return
        self._version = version
        self._due = monotonic() + REFRESH_INTERVAL
        before = self._details
        self._details = self._read()
        if self._details.lines != before.lines:
            self.query_one("#lines", Static).update(self._build_table())
        if self._details.bars != before.bars:
            self._show_bars()
        if self._details.verbatim != before.verbatim:
            verbatim = self.query_one(".verbatim", Static)
            verbatim.update(self._details.verbatim)
            verbatim.display = bool(self._details.verbatim)

    def _find_version(self) -> object:
        # If its controller is killed, the run ends without an event.
        return self._feed.version, self._feed.status

    def _make_charts(self) -> list[StackedBars]:
        return [group.make_chart() for group in self._details.bars]

    def _show_bars(self) -> None:
        charts = list(self.query(StackedBars))
        groups = self._details.bars
        if len(charts) != len(groups):
            container = self.query_one(".bars", Vertical)
            container.remove_children()
            container.mount(*self._make_charts())
            return
        for chart, group in zip(charts, groups, strict=True):
            group.update(chart)
            chart.refresh(layout=True)

    def _build_table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for title, text in self._details.lines:
            table.add_row(Text(title, style="dim"), Text(text))
        return table

    def action_copy(self) -> None:
        """Copy everything."""
        text = "\n".join(f"{title}: {text}" for title, text in self._details.lines)
        self.app.copy_to_clipboard(
            "\n".join(filter(None, (self._title, text, self._details.verbatim)))
        )
        self.notify("copied", timeout=2)


def build_case_details(feed: Feed, case_id: str) -> DetailsScreen:
    """Return the details of a case, for a failed one with the output of its job."""
    return DetailsScreen(case_id, feed, partial(read_case_details, feed, case_id))


def read_case_details(feed: Feed, case_id: str) -> Details:
    """Return the present details of a case."""
    case = feed.state.cases[case_id]  # a retry replaces it
    disturbed = is_disturbed(case, feed.state.jobs)
    lines = list(_list_case_lines(case, feed.case_status(case), disturbed=disturbed))
    output = read_failure_output(feed, case, case.execution.traceback)
    return Details(lines, compute_case_bars(case), output)


def read_failure_output(feed: Feed, case: CaseState | None, traceback: str | None) -> str:
    """Return the traceback and the job's output if a case ended without passing."""
    if case is None:
        return ""
    status = feed.case_status(case)
    if status == CaseStatus.PASSED or not status.is_final:
        return ""
    streams = read_job_output(feed.folder, case.execution.job)
    parts = [traceback or "", *(f"{stream.title}\n{stream.text.rstrip()}" for stream in streams)]
    return "\n\n".join(part.strip("\n") for part in parts if part)


def _list_case_lines(case: CaseState, status: str, *, disturbed: bool) -> Iterator[Line]:
    identity = case.identity
    reason = f": {case.execution.reason}" if case.execution.reason else ""
    yield "status", format_status(status, find_fault_outcome(case.execution.reason) or "") + reason
    if signs := explain_signs(case, disturbed=disturbed):
        yield "signs", signs
    yield (
        "benchmark",
        f"{identity.benchmark}, {format_quantity(identity.np, 'rank')}, "
        f"{format_quantity(case.repeats, 'repetition')}",
    )
    if iteration := find_iteration_name(identity.benchmark):
        yield "iteration", iteration
    if repeats := describe_repeats(case):
        yield "repeats", repeats
    yield "parameters", "; ".join(_list_param_texts(case))
    if identity.inject:
        yield "planted fault", identity.inject
    for name, choice in case.measured.choices.items():
        yield name, f"{choice['value']} ({choice['reason']})"
    yield from _list_reference_lines(case, disturbed=disturbed)
    yield from _list_size_lines(case)
    if separate := name_separate_metrics(case):
        yield SEPARATELY, f"{', '.join(separate)}: not parts of the time"
    for expectation in case.execution.expectations:
        yield "expected", _describe_expectation(case, expectation)
    yield from _list_case_check_lines(case)
    for share in compute_all_shares(case):
        yield share.title, share.text
    if note := describe_missing_bars(case):
        yield "bars", note


def _list_param_texts(case: CaseState) -> Iterator[str]:
    """Yield the set parameters of a case in the words of the Suites page."""
    params = case.identity.params
    benchmark = BENCHMARKS.get(case.identity.benchmark)
    # The catalog may be that of another version, which has other parameters.
    is_known = benchmark is not None and all(param.name in params for param in benchmark.params)
    text_by_name = format_default_texts(benchmark, params) if benchmark and is_known else {}
    for name, value in params.items():
        text = text_by_name.get(name, format_label(value))
        if isinstance(value, Mapping):  # an environment; its values may be credentials
            text = ", ".join(value)
        if value is not None and text:
            yield f"{name} {text}"


def _list_case_check_lines(case: CaseState) -> Iterator[Line]:
    for message in describe_other_failed_checks(case):  # the reason is in the line of the status
        yield "check", format_status(CheckOutcome.FAILED) + f": {message}"
    passed = [
        name
        for name, results in case.measured.checks.items()
        if all(check.passed for check in results.values())
    ]
    if passed:
        yield "checks", format_status(CheckOutcome.PASSED) + f": {', '.join(passed)}"


def _describe_expectation(case: CaseState, expectation: Mapping[str, Any]) -> str:
    """Return the status, bound and value of an expectation."""
    metric = expectation["metric"]
    unit = _get_unit(case, metric)
    limit_text = ""
    if expectation["limit"] is not None:
        limit_text = format_value(expectation["limit"], unit, metric)
    bound = " = ".join(part for part in (limit_text, expectation.get("expression")) if part)
    value_text = "not measured"
    if expectation["value"] is not None:
        value_text = format_value(expectation["value"], unit, metric)
    share = divide_by_limit(expectation["value"], expectation["limit"])
    share_text = "" if share is None else f", {format_percent(share)} of that"
    reason = f" ({expectation['reason']})" if expectation.get("reason") else ""
    status = format_status(expectation["status"])
    return f"{status}: {metric} {expectation['op']} {bound}, it is {value_text}{share_text}{reason}"


def _list_reference_lines(case: CaseState, *, disturbed: bool) -> Iterator[Line]:
    """Yield the references and the efficiencies of their metrics."""
    explanations: set[str] = set()
    for name, reference in case.measured.median_references.items():
        spec = case.identity.metrics.get(name)
        unit = _get_unit(case, name)
        summary = case.summary(name)
        better = spec.better if spec is not None else "lower"
        median_value = summary.p50 if summary is not None else None
        reference_text = "unknown"
        if reference["value"] is not None:
            reference_text = format_value(reference["value"], unit, name)
        efficiency = compute_efficiency(median_value, reference["value"], better)
        suffix = ""
        if efficiency is not None:
            suffix = f", efficiency {format_efficiency(efficiency, disturbed=disturbed)}"
            explanations.add(explain_efficiency(efficiency))
        metric = format_metric_name(name, unit)
        origin = f"measured in the same job: {reference['measured_by']}"
        text = f"{reference_text}{suffix}; {origin}"
        is_first = name == next(iter(case.measured.median_references))
        yield ("reference", f"{metric} {text}") if is_first else (f"{metric} reference", text)
    for explanation in sorted(explanations - {""}):
        yield "", explanation


def _list_size_lines(case: CaseState) -> Iterator[Line]:
    """Yield the medians of all pairs for each of several message sizes."""
    values_by_size: dict[int, dict[str, list[float]]] = {}
    for row in filter(is_link, case.measured.labelled):
        values_by_name = values_by_size.setdefault(row["bytes"], {})
        values_by_name.setdefault(row["name"], []).append(row["value"])
    if len(values_by_size) < 2:
        return
    yield "sizes", "medians of all pairs; for each pair: 4 (Hosts), m"
    for size, values_by_name in sorted(values_by_size.items()):
        figures = []
        for name, values in values_by_name.items():
            unit = _get_unit(case, name)
            figures.append(
                f"{format_metric_name(name, unit)} {format_value(median(values), unit, name)}"
            )
        yield f"  {format_size(size)}", ", ".join(figures)


def _get_unit(case: CaseState, metric: str) -> str:
    """Return the unit of a metric or of its statistic, such as ``time_ms.p95``."""
    spec = case.identity.metrics.get(metric.partition(".")[0])
    return spec.unit if spec is not None else ""
