"""A case in two runs: values, ratio, interval and p-value of each metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from spbench.record.efficiency import is_ratio_of_times
from spbench.record.runs.case_durations import UNTIMED_PARAMS
from spbench.report.comparison.conditions import PastLaunches
from spbench.report.comparison.deciding_factor import DecidingFactor, estimate_deciding_factor
from spbench.report.comparison.judgement import explain_broken, explain_unfit
from spbench.report.comparison.model import HEADLINE, CasePair, MetricRow, Outcome
from spbench.report.model import CasePart
from spbench.stats.difference import (
    SIGNIFICANCE_LEVEL,
    Difference,
    combine_p_values,
    compute_min_p_value,
    estimate_difference,
)
from spbench.suites.expand import format_label

PROPORTIONAL = 0.01
"""The largest spread of the quotient with the time for a metric that follows from the time.

It is not 0, because rates are computed from the median of the slowest rank.
"""
_LaunchValues = tuple[Sequence[float], Sequence[float]]
"""The values of the launches of a and of b."""


def pair_cases(
    a: CasePart,
    b: CasePart,
    past_launches: PastLaunches,
    mismatch: str | None = None,
    *,
    force: bool = False,
) -> CasePair:
    """Return a case of two runs; its rows have p-values, but no outcomes.

    Args:
        a: The case in run a.
        b: The case in run b.
        past_launches: The launches of earlier runs.
        mismatch: The reason why the two runs cannot be compared, if there is one.
        force: Whether the case is compared although its parameters or ranks differ.
    """
    unfit = " and ".join(
        f"{reason} in {run}"
        for run, case in (("a", a), ("b", b))
        if (reason := explain_unfit(case))
    )
    if a.version != b.version:
        mismatch = f"version {a.version} of {a.benchmark} in a, {b.version} in b"
    elif not force and mismatch is None:
        mismatch = "; ".join(_generate_work_differences(a, b)) or None

    names = dict.fromkeys((*a.metrics, *b.metrics))
    rows = [_compare_metric(a, b, name, past_launches, unfit, mismatch) for name in names]
    time_row = next((row for row in rows if row.metric == HEADLINE), None)
    return CasePair(
        id=a.id,
        status_a=a.status,
        status_b=b.status,
        differences=tuple(_generate_differences(a, b)),
        broken=explain_broken(a, b) is not None,
        benchmark=a.benchmark,
        rows=tuple(_use_interval_of_time(row, time_row, (a, b)) for row in rows),
    )


def _use_interval_of_time(
    row: MetricRow, time_row: MetricRow | None, cases: tuple[CasePart, CasePart]
) -> MetricRow:
    """Return a row with the interval of the time if it follows from the time.

    Examples are the latency of a barrier, which is its time, and a rate of fixed work: the quotient
    or the product with the time is the same in all launches. Such a row has no p-value.
    `judge_pair` copies the outcome of the time to it, since a separate test could judge the same
    measurement differently.
    """
    if time_row is None or time_row.interval is None or row.metric == HEADLINE:
        return row
    if row.chance is None or row.ratio is None or row.better == "none":
        return row
    values_and_times_ms: list[tuple[float, float]] = []
    for case in cases:
        launch_values = launch_medians(case, row.metric)
        launch_times_ms = launch_medians(case, HEADLINE)
        if len(launch_values) != len(launch_times_ms):
            return row  # for example the skew, of which a run has only one value
        values_and_times_ms += zip(launch_values, launch_times_ms, strict=True)
    is_inverse = row.better != time_row.better
    if is_inverse:
        is_proportional = _is_constant([value * time_ms for value, time_ms in values_and_times_ms])
    else:
        is_proportional = _is_constant([value / time_ms for value, time_ms in values_and_times_ms])
    if not is_proportional:
        return row
    low, high = time_row.interval
    if is_inverse:
        low, high = 1 / high, 1 / low
    interval = min(low, row.ratio), max(high, row.ratio)
    return replace(row, interval=interval, chance=None, past=time_row.past)


def _is_constant(numbers: Sequence[float]) -> bool:
    return max(numbers) <= (1 + PROPORTIONAL) * min(numbers)


def _generate_work_differences(a: CasePart, b: CasePart) -> Iterator[str]:
    """Yield the differences in work that make the times of two cases incomparable."""
    if a.benchmark != b.benchmark:
        yield f"{a.benchmark} in a, {b.benchmark} in b"
    if a.np != b.np:
        yield f"{a.np} ranks in a, {b.np} in b"
    if None not in (a.crowded, b.crowded) and a.crowded != b.crowded:
        yield f"more ranks than cores in {'a' if a.crowded else 'b'} only"
    yield from _generate_param_differences(
        a, b, (name for name in a.params if name not in UNTIMED_PARAMS)
    )


def _generate_param_differences(a: CasePart, b: CasePart, names: Iterable[str]) -> Iterator[str]:
    """Yield the differences in parameters that both cases have."""
    for name in names:
        if name in a.params and name in b.params and a.params[name] != b.params[name]:
            value_a, value_b = map(_format_param, (a.params[name], b.params[name]))
            yield f"{name} {value_a} in a, {value_b} in b"


def _format_param(param: Any) -> str:
    return "not set" if param is None else format_label(param)


def _generate_differences(a: CasePart, b: CasePart) -> Iterator[str]:
    yield from _generate_work_differences(a, b)
    for run, case in (("a", a), ("b", b)):
        if case.noisy:
            yield f"noisy in {run}: {case.noisy}"
    yield from _generate_param_differences(a, b, UNTIMED_PARAMS)
    for run, params, other_params in (("a", a.params, b.params), ("b", b.params, a.params)):
        only_here = [
            f"{name}={format_label(value)}"
            for name, value in params.items()
            if value is not None and name not in other_params
        ]
        if only_here:
            yield f"only in {run}: {', '.join(only_here)}"


def _compare_metric(
    a: CasePart,
    b: CasePart,
    name: str,
    past_launches: PastLaunches,
    unfit: str,
    mismatch: str | None,
) -> MetricRow:
    """Return the row of a metric: with a p-value and no outcome if it can be judged.

    Args:
        a: The case in run a.
        b: The case in run b.
        name: The metric, which at least one of them has.
        past_launches: The launches of earlier runs.
        unfit: The reason why a value is not a result; empty if both are results.
        mismatch: The reason why the two cases cannot be compared, if there is one.
    """
    metric_a = a.metrics.get(name)
    metric_b = b.metrics.get(name)
    metric = metric_b or metric_a
    assert metric is not None, "a row is made for a metric that a run has"
    row = MetricRow(
        case=a.id,
        metric=name,
        unit=metric.unit,
        better=metric.better,
        a=metric_a.value if metric_a else None,
        b=metric_b.value if metric_b else None,
    )
    if metric_a is None or metric_b is None:
        return replace(row, reason=f"not measured in {'a' if metric_a is None else 'b'}")
    if metric_a.unit != metric_b.unit:
        return replace(row, reason=f"in {metric_a.unit} in a, in {metric_b.unit} in b")

    launch_values = launch_medians(a, name), launch_medians(b, name)
    if no_ratio := _explain_no_ratio(launch_values[0], launch_values[1]):
        # A metric such as wrong elements, with 0 in every launch of both, needs no test.
        is_same = name != HEADLINE and not any((*launch_values[0], *launch_values[1]))
        outcome = Outcome.SAME if is_same and not (unfit or mismatch) else None
        return replace(row, outcome=outcome, reason=unfit or no_ratio)
    if is_ratio_of_times(name) and min(metric_a.value, metric_b.value) > 0:
        # The median of the launches' ratios is another value, so that they have no interval.
        ratio = metric_b.value / metric_a.value
        return replace(row, ratio=ratio, reason=unfit or mismatch or "it follows from the times")

    row = _add_difference(row, a, b, launch_values, past_launches(a.id, name))
    reason = unfit or mismatch
    if not reason and metric.better == "none":
        reason = "neither way is better"
    outcome = Outcome.NOT_COMPARABLE if mismatch and not unfit else None
    return replace(row, outcome=outcome, reason=reason)


def _add_difference(
    row: MetricRow,
    a: CasePart,
    b: CasePart,
    launch_values: _LaunchValues,
    past_runs: Sequence[Sequence[float]],
) -> MetricRow:
    """Return a row with the ratio, its interval and its p-value."""
    median_difference = estimate_difference(*launch_values, past_runs)
    row = replace(
        row,
        ratio=median_difference.ratio,
        launches=(len(launch_values[0]), len(launch_values[1])),
        chance=median_difference.p_value,
        past=median_difference.past_runs,
    )
    if median_difference.low is not None and median_difference.high is not None:
        row = replace(row, interval=(median_difference.low, median_difference.high))
    if row.metric != HEADLINE:
        return row

    row = replace(row, factor=_find_factor(a, b, launch_values, past_runs))
    fastest_difference = _compare_fastest(a, b, launch_values, past_runs)
    if fastest_difference is None:
        return row
    return replace(
        row,
        chance=combine_p_values(median_difference.p_value, fastest_difference.p_value),
        fastest=fastest_difference.ratio,
        by_fastest=fastest_difference.p_value <= SIGNIFICANCE_LEVEL < median_difference.p_value,
    )


def _find_factor(
    a: CasePart, b: CasePart, launch_values: _LaunchValues, past_runs: Sequence[Sequence[float]]
) -> DecidingFactor | None:
    """Return the factor for a judgement without a test; None for noisy cases."""
    if a.noisy or b.noisy:
        return None
    return estimate_deciding_factor(
        [
            time_ms
            for launches in (launch_values[0], *past_runs)
            for time_ms in launches
            if time_ms > 0
        ]
    )


def _compare_fastest(
    a: CasePart, b: CasePart, medians: _LaunchValues, past_runs: Sequence[Sequence[float]]
) -> Difference | None:
    """Return the difference of the fastest iterations of the launches.

    None if they are not known, or if launches of a and b have different numbers of iterations. With
    few launches, two tests are less powerful than one: then it is None, too, and only medians
    count. The fastest iterations of earlier runs are not known. They are assumed to differ as much
    as their medians.
    """
    medians_a, medians_b = medians
    if 2 * compute_min_p_value(len(medians_a), len(medians_b)) > SIGNIFICANCE_LEVEL:
        return None
    if len(a.fastest) != len(medians_a) or len(b.fastest) != len(medians_b):
        return None
    # The fastest of more iterations is faster: n_a / launches_a must equal n_b / launches_b.
    if a.metrics[HEADLINE].n * len(medians_b) != b.metrics[HEADLINE].n * len(medians_a):
        return None
    if _explain_no_ratio(a.fastest, b.fastest):
        return None
    return estimate_difference(a.fastest, b.fastest, past_runs)


def launch_medians(case: CasePart, name: str) -> list[float]:
    """Return the value of a metric in each launch; old reports had one launch."""
    return case.medians.get(name) or [case.metrics[name].value]


def _explain_no_ratio(a: Sequence[float], b: Sequence[float]) -> str | None:
    """Return the reason why values have no ratio; None if all are above 0."""
    sides = (("a", a), ("b", b))
    if runs_with_zero := [run for run, numbers in sides if any(number == 0 for number in numbers)]:
        return f"0 in {' and '.join(runs_with_zero)}"
    if runs_with_negative := [
        run for run, numbers in sides if any(number < 0 for number in numbers)
    ]:
        return f"below 0 in {' and '.join(runs_with_negative)}"
    return None
