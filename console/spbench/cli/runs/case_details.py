"""Lines below the row of a case: metrics, choices, references and time shares."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from spbench.cli.text_layout import indent_text
from spbench.record.case_state import CaseState
from spbench.record.efficiency import SPEEDUPS, find_efficiency_time, is_relative
from spbench.record.machine.core_sharing import is_crowded
from spbench.record.metric_names import (
    format_folded_name,
    format_metric_name,
    list_separate_metrics,
    name_separate_metrics,
)
from spbench.record.noise import is_disturbed
from spbench.record.number_formatting import DISTURBED, format_value
from spbench.record.run_parts import JobState
from spbench.record.shares import compute_all_shares

CASE_INDENT = " " * 8
"""The indent of lines below the row of a case."""
_OTHER_LOOPS = "in other loops"


def render_details(
    case: CaseState, jobs: Mapping[int, JobState], width: int, in_row: Container[str]
) -> Iterator[str]:
    """Yield the further metrics of a case, its time shares and its choices.

    Args:
        case: The case.
        jobs: The launches.
        width: The most columns of a line.
        in_row: The metrics that the row of the case shows already.
    """
    sign = DISTURBED if is_disturbed(case, jobs) else ""
    separate = list_separate_metrics(case.identity.benchmark)
    time_shares = compute_all_shares(case)
    # Such as the bubble, a mean over ranks, which is also among the shares of all ranks.
    names_of_shares = {part for share in time_shares for part in share.parts}
    shown_names = [
        name for name in case.identity.metrics if name.replace("_", " ") not in names_of_shares
    ]
    timed_names = (name for name in shown_names if name not in separate and name not in in_row)
    untimed_names = (name for name in shown_names if name in separate)
    for title, descriptions in (
        ("", _describe_metrics(case, timed_names, sign)),
        (f"{_OTHER_LOOPS}: ", _describe_metrics(case, untimed_names, sign)),
        ("in the last repeat: " if case.repeats > 1 else "", _describe_choices(case)),
    ):
        if text := ", ".join(descriptions):
            yield from indent_text(title + text, width, CASE_INDENT)
    for name_and_reference in case.measured.median_references.items():
        yield from indent_text(_describe_reference(case, *name_and_reference), width, CASE_INDENT)
    for share in time_shares:
        text = f"{share.title}, all ranks together: {share.text}"
        yield from indent_text(text, width, CASE_INDENT)


def render_detail_legend(cases: Iterable[CaseState], jobs: Mapping[int, JobState]) -> Iterator[str]:
    """Yield the legend of `render_details` for these cases."""
    shown = list(cases)
    others = [case for case in shown if name_separate_metrics(case)]
    if others:
        is_shared = any(is_crowded(case, jobs) for case in others)
        turns = ", since ranks that share cores take turns there, too" if is_shared else ""
        yield (
            f"{_OTHER_LOOPS}: measured outside of the timed iterations, so that the values do not "
            f"add up to the time{turns}."
        )
    if shown:
        example = shown[0].identity.benchmark
        yield f"Each metric is explained by `spbench benchmarks NAME`, such as {example}."


def _describe_reference(case: CaseState, name: str, reference: Mapping[str, Any]) -> str:
    metric = case.identity.metrics.get(name)
    unit = metric.unit if metric else ""
    value = reference["value"]
    number = "unknown" if value is None else format_value(value, unit, name)
    text = f"reference of {format_metric_name(name, unit)}: {number}, {reference['measured_by']}"
    values_of_repeats = [part["value"] for part in case.measured.references.get(name, {}).values()]
    values = [value for value in values_of_repeats if value is not None]
    if len(values) > 1:
        least_and_most = [format_value(end, unit, name) for end in (min(values), max(values))]
        text += f"; {least_and_most[0]} to {least_and_most[1]} over {len(values)} repeats"
    return text


def _describe_metrics(case: CaseState, names: Iterable[str], sign: str) -> Iterator[str]:
    """Yield further metrics; ratios of disturbed cases are marked with a sign."""
    for name in names:
        metric = case.identity.metrics[name]
        summary = case.summary(name)
        if summary is None or metric.part_of or metric.better == "none":
            continue
        if find_efficiency_time(name, case.measured.median_references) == "time_ms":
            continue  # the row shows it as the efficiency
        if name == "time_ms":
            p95, p99 = (format_value(value, metric.unit) for value in (summary.p95, summary.p99))
            yield f"p95 {p95}, p99 {p99}"
        else:
            value = format_value(summary.p50, metric.unit, name)
            title = format_folded_name(name, metric.unit)
            mark = sign if is_relative(name) else ""
            yield f"{title} {mark}{value}{_describe_speedup(case, name)}"


def _describe_speedup(case: CaseState, name: str) -> str:
    """Return the ratio of a speed-up, ``(sequential / time)``, if not in its name."""
    compared = [time for time in SPEEDUPS.get(name, ()) if time in case.identity.metrics]
    if not compared or name == "speedup_vs_sequential":
        return ""
    return f" ({format_metric_name(compared[0], case.identity.metrics[compared[0]].unit)} / time)"


def _describe_choices(case: CaseState) -> Iterator[str]:
    for name, choice in case.measured.choices.items():
        yield f"{name} {_describe_choice(name, choice)}"


def _describe_choice(name: str, choice: Mapping[str, str]) -> str:
    """Return a choice and its reason; a device is marked if it is an automatic CPU."""
    if name == "device":
        automatic = choice["value"] == "cpu" and choice["reason"].startswith("auto")
        return f"{choice['value']} (auto)" if automatic else choice["value"]
    reason = choice["reason"]
    return choice["value"] if reason in ("", "asked for") else f"{choice['value']} ({reason})"
