"""The details of one case or rank, in a panel over the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.record.case_state import CaseState, CheckResult
from spbench.record.comparison import RankComparison
from spbench.record.coordinates import MIRRORED
from spbench.record.efficiency import ABOVE_REFERENCE, compute_efficiency, format_efficiency
from spbench.record.judge import describe_failed_checks, divide_by_limit
from spbench.record.machine.cores import fold_numbers
from spbench.record.metric_names import (
    SEPARATELY,
    find_iteration_name,
    format_metric_name,
    name_separate_metrics,
)
from spbench.record.noise import is_disturbed
from spbench.record.number_formatting import (
    format_factor,
    format_number,
    format_percent,
    format_time,
    format_value,
)
from spbench.record.repeats import describe_repeats
from spbench.record.run_parts import RankState
from spbench.record.runs.job_output import read_job_output
from spbench.record.shares import compute_all_shares
from spbench.tui.cells import format_status
from spbench.tui.dialogs import Modal
from spbench.tui.feed import Feed
from spbench.tui.run.bars import build_case_bars, build_rank_bars, describe_missing_bars
from spbench.tui.run.selection import RunSelection
from spbench.tui.widgets.stacked_bars import StackedBars
from spbench_core.events.statuses import CaseStatus, CheckOutcome, RankStatus
from spbench_core.quantities import format_quantity

Line = tuple[str, str]
"""A line of details: its title, and its text."""


class DetailsScreen(Modal[None]):
    """Names and texts below each other, then bars; a traceback stands last, as it came."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "app.pop_screen", "Close", id="details.close"),
        Binding("y", "copy", "Copy", id="details.copy", tooltip="Copy it all"),
    ]
    DEFAULT_CSS = """
    DetailsScreen { align: center middle; }
    DetailsScreen > Vertical {
        width: 110; max-width: 96%; height: auto; max-height: 90%; padding: 0 1;
        background: $panel; border: round $primary; border-subtitle-color: $text-muted;
    }
    DetailsScreen VerticalScroll { height: auto; max-height: 100%; }
    DetailsScreen Static { height: auto; }
    DetailsScreen StackedBars { height: auto; margin-top: 1; background: $panel; }
    """

    def __init__(
        self, title: str, lines: list[Line], bars: list[StackedBars], verbatim: str = ""
    ) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._bars = bars
        self._verbatim = verbatim

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = Content(self._title)
            frame.border_subtitle = Content("y copies  esc closes")
            with VerticalScroll():
                yield Static(self._table())
                yield from self._bars
                if self._verbatim:
                    yield Static(self._verbatim, markup=False, classes="verbatim")

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, text in self._lines:
            table.add_row(Text(name, style="dim"), Text(text))
        return table

    def action_copy(self) -> None:
        """Copy everything."""
        text = "\n".join(f"{name}: {text}" for name, text in self._lines)
        self.app.copy_to_clipboard("\n".join(filter(None, (self._title, text, self._verbatim))))
        self.notify("copied", timeout=2)


def build_case_details(feed: Feed, case_id: str) -> DetailsScreen:
    """Return what is known of a case; of one that did not pass with traceback and raw output."""
    case = feed.state.cases[case_id]
    disturbed = is_disturbed(case, feed.state.jobs)
    lines = list(_case_lines(case, feed.case_status(case), disturbed=disturbed))
    raw = _raw(feed, case, case.verdict.traceback)
    return DetailsScreen(case_id, lines, build_case_bars(case), raw)


def _raw(feed: Feed, case: CaseState | None, traceback: str | None) -> str:
    """The traceback, and what the job wrote; of a case that passed, or runs, nothing."""
    if case is None:
        return ""
    status = feed.case_status(case)
    if status == CaseStatus.PASSED or not status.is_final:
        return ""
    ends = read_job_output(feed.folder, case.verdict.job)
    parts = [traceback or "", *(f"{end.title}\n{end.text.rstrip()}" for end in ends)]
    return "\n\n".join(part.strip("\n") for part in parts if part)


def _case_lines(case: CaseState, status: str, *, disturbed: bool) -> Iterator[Line]:
    yield (
        "status",
        format_status(status) + (f": {case.verdict.reason}" if case.verdict.reason else ""),
    )
    yield (
        "benchmark",
        f"{case.identity.benchmark}, {format_quantity(case.identity.np, 'rank')}, "
        f"{format_quantity(case.repeats, 'repetition')}",
    )
    if iteration := find_iteration_name(case.identity.benchmark):
        yield "iteration", iteration
    if told := describe_repeats(case):
        yield "repeats", told
    yield "parameters", ", ".join(f"{name}={value}" for name, value in case.identity.params.items())
    if case.identity.inject:
        yield "planted fault", case.identity.inject
    for name, choice in case.measured.choices.items():
        yield name, f"{choice['value']} ({choice['reason']})"
    yield from _reference_lines(case, disturbed=disturbed)
    if separate := name_separate_metrics(case):
        yield SEPARATELY, f"{', '.join(separate)}: not parts of the time"
    for item in case.verdict.expectations:
        unit = _unit_of(case, item["metric"])
        value = "not measured"
        if item["value"] is not None:
            value = format_value(item["value"], unit, item["metric"])
        why = f" ({item['reason']})" if item.get("reason") else ""
        share = divide_by_limit(item["value"], item["limit"])
        part = "" if share is None else f", {format_percent(share)} of that"
        yield (
            "expected",
            f"{format_status(item['status'])}: {_bound(item, unit)}, it is {value}{part}{why}",
        )
    for sentence in set(describe_failed_checks(case)) - {case.verdict.reason}:
        yield "check", format_status(CheckOutcome.FAILED) + f": {sentence}"
    passed = [name for name in case.measured.checks if _all_passed(case, name)]
    if passed:
        yield "checks", format_status(CheckOutcome.PASSED) + f": {', '.join(passed)}"
    for of in compute_all_shares(case):
        yield of.title, of.text
    if beyond := describe_missing_bars(case):
        yield "bars", beyond


def _reference_lines(case: CaseState, *, disturbed: bool) -> Iterator[Line]:
    """The references, and the efficiency of the metric that each belongs to."""
    is_beaten = False
    for name, limit in case.measured.limits.items():
        info = case.identity.metrics.get(name)
        summary = case.summary(name)
        better = info.better if info is not None else "lower"
        value = summary.p50 if summary is not None else None
        efficiency = compute_efficiency(value, limit["value"], better)
        reference = "unknown"
        if limit["value"] is not None:
            reference = format_value(limit["value"], _unit_of(case, name), name)
        suffix = f", efficiency {format_efficiency(efficiency, disturbed=disturbed)}"
        more = suffix if efficiency is not None else ""
        metric = format_metric_name(name, _unit_of(case, name))
        yield "reference", f"{metric} {reference}{more}, by {limit['measured_by']}"
        is_beaten = is_beaten or (efficiency or 0.0) > 1
    if is_beaten:
        yield "", ABOVE_REFERENCE


def _bound(item: Mapping[str, Any], unit: str) -> str:
    """Return what an expectation asks for: ``time_ms.p95 max 5.00 ms``."""
    known = "" if item["limit"] is None else format_value(item["limit"], unit, item["metric"])
    bound = " = ".join(part for part in (known, item.get("expression")) if part)
    return f"{item['metric']} {item['op']} {bound}"


def _unit_of(case: CaseState, metric: str) -> str:
    """Return the unit of a metric or of its statistic, such as ``time_ms.p95``."""
    info = case.identity.metrics.get(metric.partition(".")[0])
    return info.unit if info is not None else ""


def _all_passed(case: CaseState, check: str) -> bool:
    return all(result.passed for result in case.measured.checks[check].values())


def build_rank_details(selection: RunSelection, rank: int) -> DetailsScreen:
    """Return where a rank runs, and how its checks came out in the case that is shown."""
    case = selection.case
    live = selection.feed.state.ranks.get(rank) if case is selection.running else None
    bars = build_rank_bars(case, rank) if case else []
    part = case.measured.ranks.get(rank) if case else None
    traceback = part.error.get("traceback") if part and part.error else None
    raw = _raw(selection.feed, case, traceback)
    return DetailsScreen(f"rank {rank}", list(_rank_lines(case, rank, live)), bars, raw)


def _rank_lines(case: CaseState | None, rank: int, live: RankState | None) -> Iterator[Line]:
    part = case.measured.ranks.get(rank) if case else None
    known = part or live
    if part is not None and part.error is not None:
        yield (
            "error",
            format_status(RankStatus.ERROR) + f": {part.error.get('message', 'no message')}",
        )
    elif part is not None and part.status == RankStatus.LOST and case is not None:
        yield "lost", case.verdict.reason or "the rank has ended without an error message"
    if known is not None:
        facts = known.facts
        device = part.device if part is not None else facts.device
        yield "host", f"{facts.host}, local rank {facts.local_rank}"
        yield "device", device or "unknown"
        yield "cores", fold_numbers(facts.cpus) or "unknown"
        yield "NUMA nodes", fold_numbers(facts.nodes) or "unknown"
        yield "fabric", facts.fabric or "unknown"
    if part is not None:
        yield from _places(part.coordinates)
    if live is not None:
        yield "process", f"{live.facts.pid}, {live.facts.threads} threads"
        versions = (f"{name} {text}" for name, text in live.facts.versions.items() if text)
        yield "versions", ", ".join(versions)
    yield from _compared(case, rank) if case else ()
    for name, results in (case.measured.checks if case else {}).items():
        for (repeat, of), result in sorted(results.items()):
            if of == rank:
                yield "check", f"{name}, repeat {repeat}: {_checked(result)}"
    for own in compute_all_shares(case, rank) if case else ():
        yield own.title, own.text


def _compared(case: CaseState, rank: int) -> Iterator[Line]:
    """The median time of a rank, its waits, and how it compares with ranks of the same work."""
    times = case.active_medians()
    comparison = RankComparison(case.identity)
    if rank not in times:
        return
    time = times[rank]
    yield "median time", format_time(time.total)
    if time.active is not None and time.waits is not None:
        yield (
            "of that",
            f"own {format_time(time.active)}, waits for other ranks {format_time(time.waits)}",
        )
    skew = comparison.compare(times).ratios.get(rank)
    if skew is not None:
        alike = fold_numbers(tuple(comparison.find_comparable(times)[rank]))
        yield "skew", f"{format_factor(skew)} the median of ranks {alike}, which do the same work"


def _places(place: Mapping[str, Any]) -> Iterator[Line]:
    """The place of the rank, and its place in a mirrored pipeline."""
    first = {name: text for name, text in place.items() if not name.startswith(MIRRORED)}
    second = {name: text for name, text in place.items() if name.startswith(MIRRORED)}
    if first:
        yield "place", ", ".join(f"{name} {text}" for name, text in first.items())
    if second:
        told = (f"{name.removeprefix(MIRRORED)} {text}" for name, text in second.items())
        yield "mirrored", ", ".join(told)


def _checked(result: CheckResult) -> str:
    error = "not a number" if result.max_abs_error is None else format_number(result.max_abs_error)
    where = f": {result.detail}" if result.detail else ""
    verdict = format_status(CheckOutcome.PASSED if result.passed else CheckOutcome.FAILED)
    return f"{verdict}, largest error {error} (tolerance {format_number(result.tolerance)}){where}"
