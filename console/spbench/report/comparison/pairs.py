"""A case of two runs side by side: each metric's values, ratio, interval and chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from spbench.record.efficiency import is_ratio_of_times
from spbench.record.runs.case_work import DATA_ALONE
from spbench.report.comparison.deciding_factor import deciding_factor
from spbench.report.comparison.judgement import explain_broken, explain_unfit
from spbench.report.comparison.model import HEADLINE, CasePair, MetricRow, Outcome
from spbench.report.comparison.past import PastLaunches
from spbench.report.model import CasePart
from spbench.stats.difference import (
    LEVEL,
    Difference,
    combine_chances,
    estimate_difference,
    smallest_chance,
)
from spbench.suites.expand import format_label

SAMPLED_ALIKE = 0.01
"""What follows from the time differs by less: rates have the time of the slowest rank's median."""
_Sides = tuple[Sequence[float], Sequence[float]]


def pair_cases(
    a: CasePart,
    b: CasePart,
    past: PastLaunches,
    mismatch: str | None = None,
    *,
    force: bool = False,
) -> CasePair:
    """Return a case of two runs; rows that can be judged have a chance, and no outcome yet."""
    wrong = [
        f"{why} in {run}" for run, case in (("a", a), ("b", b)) if (why := explain_unfit(case))
    ]
    if a.version != b.version:
        mismatch = f"version {a.version} of {a.benchmark} in a, {b.version} in b"
    elif not force and mismatch is None:
        mismatch = "; ".join(_other_work(a, b)) or None
    rows = [
        _row(a, b, name, past, " and ".join(wrong), mismatch)
        for name in dict.fromkeys((*a.metrics, *b.metrics))
    ]
    time = next((row for row in rows if row.metric == HEADLINE), None)
    return CasePair(
        id=a.id,
        status_a=a.status,
        status_b=b.status,
        differences=tuple(_differences(a, b)),
        broken=explain_broken(a, b) is not None,
        benchmark=a.benchmark,
        rows=tuple(_with_interval_of_time(row, time, (a, b)) for row in rows),
    )


def _with_interval_of_time(
    row: MetricRow, time: MetricRow | None, sides: tuple[CasePart, CasePart]
) -> MetricRow:
    """Return a row with the interval of its case's time and no chance, if it follows from the time.

    Examples are the latency of a barrier, which is its time, and a rate of fixed work: the quotient
    or the product with the time is the same in all launches. `judged` gives it the outcome of the
    time, since a separate test could judge the same measurement differently.
    """
    if time is None or time.interval is None or row.metric == HEADLINE:
        return row
    if row.chance is None or row.ratio is None or row.better == "none":
        return row
    launches: list[tuple[float, float]] = []
    for case in sides:
        values = launch_medians(case, row.metric)
        times = launch_medians(case, HEADLINE)
        if len(values) != len(times):
            return row  # such as the skew, which a run has once
        launches += zip(values, times, strict=True)
    inverse = row.better != time.better
    if not _is_constant([value * time if inverse else value / time for value, time in launches]):
        return row
    low, high = time.interval
    if inverse:
        low, high = 1 / high, 1 / low
    interval = min(low, row.ratio), max(high, row.ratio)
    return replace(row, interval=interval, chance=None, past=time.past)


def _is_constant(values: Sequence[float]) -> bool:
    return max(values) <= (1 + SAMPLED_ALIKE) * min(values)


def _other_work(a: CasePart, b: CasePart) -> Iterator[str]:
    """Yield the differences in work that make the times of two cases incomparable."""
    if a.benchmark != b.benchmark:
        yield f"{a.benchmark} in a, {b.benchmark} in b"
    if a.np != b.np:
        yield f"{a.np} ranks in a, {b.np} in b"
    if None not in (a.crowded, b.crowded) and a.crowded != b.crowded:
        yield f"more ranks than cores in {'a' if a.crowded else 'b'} only"
    yield from _other_values(a, b, (name for name in a.params if name not in DATA_ALONE))


def _other_values(a: CasePart, b: CasePart, names: Iterable[str]) -> Iterator[str]:
    """Yield the parameters that both know and that differ; an older version may know fewer."""
    for name in names:
        if name in a.params and name in b.params and a.params[name] != b.params[name]:
            yield f"{name} {_shown(a.params[name])} in a, {_shown(b.params[name])} in b"


def _shown(value: Any) -> str:
    return "not set" if value is None else format_label(value)


def _differences(a: CasePart, b: CasePart) -> Iterator[str]:
    yield from _other_work(a, b)
    for run, case in (("a", a), ("b", b)):
        if case.noisy:
            yield f"noisy in {run}: {case.noisy}"
    yield from _other_values(a, b, DATA_ALONE)
    for run, mine, others in (("a", a.params, b.params), ("b", b.params, a.params)):
        alone = [
            f"{name}={format_label(value)}"
            for name, value in mine.items()
            if value is not None and name not in others
        ]
        if alone:
            yield f"only in {run}: {', '.join(alone)}"


def _row(
    a: CasePart, b: CasePart, name: str, past: PastLaunches, unfit: str, unlike: str | None
) -> MetricRow:
    """Return a metric's row; one that can be judged has a chance, and no outcome yet."""
    mine = a.metrics.get(name)
    other = b.metrics.get(name)
    known = other or mine
    assert known is not None, "a row is made for a metric that a run has"
    row = MetricRow(
        case=a.id,
        metric=name,
        unit=known.unit,
        better=known.better,
        a=mine.value if mine else None,
        b=other.value if other else None,
        reason=unfit or None,
    )
    if mine is None or other is None:
        return replace(row, reason=f"not measured in {'a' if mine is None else 'b'}")
    if mine.unit != other.unit:
        return replace(row, reason=f"in {mine.unit} in a, in {other.unit} in b")
    sides = launch_medians(a, name), launch_medians(b, name)
    if no_ratio := _no_ratio(sides[0], sides[1]):
        # Such as wrong elements: 0 in every launch of both needs no test.
        is_same = name != HEADLINE and not any((*sides[0], *sides[1]))
        outcome = Outcome.SAME if is_same and not (unfit or unlike) else None
        return replace(row, outcome=outcome, reason=unfit or no_ratio)
    if is_ratio_of_times(name) and min(mine.value, other.value) > 0:
        # The launches' own ratios have another median, so that they give it no interval.
        why = "it follows from the times"
        return replace(row, ratio=other.value / mine.value, reason=unfit or unlike or why)
    headline = name == HEADLINE
    known_past = past(a.id, name)
    found = estimate_difference(*sides, known_past)
    fastest = _fastest(a, b, sides, known_past) if headline else None
    factor = None
    if headline and not (a.noisy or b.noisy):
        recorded = [launch for run in (sides[0], *known_past) for launch in run if launch > 0]
        factor = deciding_factor(recorded)
    low = found.low
    high = found.high
    return replace(
        row,
        ratio=found.ratio,
        interval=None if low is None or high is None else (low, high),
        launches=(len(sides[0]), len(sides[1])),
        chance=combine_chances(found.chance, fastest.chance) if fastest else found.chance,
        fastest=fastest.ratio if fastest else None,
        by_fastest=fastest is not None and fastest.chance <= LEVEL < found.chance,
        past=found.past_runs,
        factor=factor,
        outcome=Outcome.NOT_COMPARABLE if unlike and not unfit else None,
        reason=unfit or unlike or (None if known.better != "none" else "neither way is better"),
    )


def _fastest(
    a: CasePart, b: CasePart, medians: _Sides, past: Sequence[Sequence[float]]
) -> Difference | None:
    """Return how the fastest iterations differ; None where they are not known, or of unlike many.

    Those of earlier runs are not known: they are taken to differ as much as their medians. With so
    few launches that two tests could not find what one does, there is the one of the medians.
    """
    if 2 * smallest_chance(len(medians[0]), len(medians[1])) > LEVEL:
        return None
    counts_a, counts_b = (
        case.metrics[HEADLINE].n * len(other) for case, other in ((a, medians[1]), (b, medians[0]))
    )
    known = all(len(case.fastest) == len(of) for case, of in ((a, medians[0]), (b, medians[1])))
    if not known or counts_a != counts_b or _no_ratio(a.fastest, b.fastest):
        return None
    return estimate_difference(a.fastest, b.fastest, past)


def launch_medians(case: CasePart, name: str) -> list[float]:
    """Return a metric's value in each launch; an old report's repeats were of one launch."""
    return case.medians.get(name) or [case.metrics[name].value]


def _no_ratio(a: Sequence[float], b: Sequence[float]) -> str | None:
    for word, wrong in (("0", lambda value: value == 0), ("below 0", lambda value: value < 0)):
        runs = [run for run, values in (("a", a), ("b", b)) if any(map(wrong, values))]
        if runs:
            return f"{word} in {' and '.join(runs)}"
    return None
