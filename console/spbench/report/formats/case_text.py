"""Text on a run and its cases that is the same in all formats of reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spbench.record.efficiency import (
    ABOVE_REFERENCE,
    SLOW_REFERENCE,
    format_efficiency,
    format_metric,
)
from spbench.record.metric_names import format_metric_name
from spbench.record.number_formatting import NOISY, format_value, replace_line_controls
from spbench.record.planted_faults import format_result_count
from spbench.report.comparison.model import HEADLINE
from spbench.report.model import CasePart, MetricPart
from spbench.report.recorded import RecordedRun
from spbench.report.times import parse_timestamp
from spbench_core.events.statuses import CaseStatus, CheckOutcome, RunStatus
from spbench_core.number_text import format_quantity

LEGEND = (
    "time: the slowest rank's time of each iteration, then the median over iterations. Values of "
    "repeated cases, and their references, are the medians of their repeats.",
    "reference: what simpler operations, such as a ping-pong or a memory copy, need for the same "
    "work, measured in a separate loop of the same job.",
    f"efficiency: reference / time; {ABOVE_REFERENCE}; {SLOW_REFERENCE}.",
    f"{NOISY}: the ranks' cores were disturbed, so that times are not the hardware's alone.",
    f"~: an efficiency of disturbed times ({NOISY}), or of more ranks than cores.",
)
"""Explanations of the columns and signs of the table of cases."""


def sort_by_urgency(run: RecordedRun) -> list[CasePart]:
    """Return the cases that did not pass, then those that did, in the suite's order."""
    return sorted(run.cases.values(), key=lambda case: case.shown_status == CaseStatus.PASSED)


def list_bad_cases(run: RecordedRun) -> list[CasePart]:
    """Return the cases that ran and did not pass, in the suite's order."""
    return [case for case in run.cases.values() if case.status.is_bad]


def has_passed(case: CasePart) -> bool:
    """Return whether a case passed."""
    return case.status == CaseStatus.PASSED


def explain_status(case: CasePart) -> str:
    """Return the reason why a case did not pass, or not in its first attempt."""
    if case.shown_status == CaseStatus.FLAKY:
        previous = case.earlier[-1]
        return replace_line_controls(
            f"passed at try {case.attempts}, after: {previous.reason or previous.status}"
        )
    return replace_line_controls(case.reason or case.status)


def format_tally(run: RecordedRun) -> str:
    """Return the numbers of cases by status, and of unjudged expectations."""
    counts = Counter(case.status_text for case in run.cases.values())
    count_texts = [format_result_count(count, status) for status, count in counts.most_common()]
    unjudged = sum(
        expectation.status == CheckOutcome.SKIPPED
        for case in run.cases.values()
        for expectation in case.expectations
    )
    count_texts += [f"{format_quantity(unjudged, 'expectation')} not judged"] if unjudged else []
    return ", ".join(count_texts) or "no cases"


def list_unexplained_errors(run: RecordedRun) -> Sequence[str]:
    """Return the errors of a run that has not passed although no case is bad."""
    has_bad_case = any(case.status.is_bad for case in run.cases.values())
    return () if has_bad_case or run.summary.status == RunStatus.PASSED else run.errors


def choose_headline(case: CasePart) -> tuple[str, MetricPart] | None:
    """Return name and values of the metric that represents a case, if it has one."""
    if HEADLINE in case.metrics:
        return HEADLINE, case.metrics[HEADLINE]
    return next(iter(case.metrics.items()), None)


def format_optional_value(value: float | None, unit: str, name: str = "") -> str:
    """Return a metric's value with its unit, or an empty text if it is unknown."""
    return "" if value is None else format_value(value, unit, name)


class TimeCells(NamedTuple):
    """The time of a case, its p95, its reference and its efficiency, as text."""

    time: str
    p95: str
    reference: str
    efficiency: str


def time_cells(case: CasePart) -> TimeCells:
    """Return the time of a case, its p95, its reference and its efficiency.

    For cases without times, the cells have name and values of the first metric.
    """
    name, metric = choose_headline(case) or ("", None)
    if metric is None:
        return TimeCells("", "", "", "")
    value_text, p95_text = (
        format_metric(figure, metric.unit, name, disturbed=case.disturbed)
        for figure in (metric.value, metric.p95)
    )
    limit = case.limits.get(name)
    reference = format_optional_value(limit.value, metric.unit, name) if limit else ""
    efficiency = format_efficiency(case.efficiency(name), disturbed=case.disturbed)
    shown = (
        value_text if name == HEADLINE else f"{format_metric_name(name, metric.unit)} {value_text}"
    )
    return TimeCells(shown, p95_text if metric.n > 1 else "", reference, efficiency)


def metric_lines(case: CasePart) -> Iterator[str]:
    """Yield a line for each metric of a JUnit file: its median, p95 and reference."""
    for name, metric in case.metrics.items():
        unit = "" if metric.unit == "1" else f" {metric.unit}".rstrip()
        spread_text = (
            f", p95 {_format_junit_number(metric.p95)}, n {metric.n}" if metric.n > 1 else ""
        )
        limit = case.limits.get(name)
        limit_text = (
            f", limit {_format_junit_number(limit.value)}"
            if limit and limit.value is not None
            else ""
        )
        yield replace_line_controls(
            f"{name} {_format_junit_number(metric.value)}{unit}{spread_text}{limit_text}"
        )


def compute_case_seconds(case: CasePart) -> float | None:
    """Return the duration of a case in seconds; None if it did not begin or end."""
    started = parse_timestamp(case.started)
    finished = parse_timestamp(case.finished)
    return None if started is None or finished is None else max(0.0, finished - started)


def _format_junit_number(value: float) -> str:
    """Return a number in the format of JUnit files, which never changed."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 999.5:
        return f"{value:.3g}"
    return f"{value:.0f}" if 999.5 <= magnitude < 1e7 else f"{value:.2e}"
