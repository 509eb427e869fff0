"""Two runs side by side: per case and metric their ratio with its interval, and a verdict.

A launch is the unit: see `difference`. Of a case's time two values of each launch are tested: its
median, and its fastest iteration, which a neighbour's load on the machine moves far less. With too
few launches for a test, a time is judged only beyond a `deciding_factor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spbench.record.efficiency import is_ratio_of_times
from spbench.record.runs.case_work import DATA_ALONE
from spbench.report.case_judgement import broken_reason, judge_cases, unfit
from spbench.report.deciding_factor import deciding_factor
from spbench.report.machines import unlike as different_machines
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.run_comparison import HEADLINE, CasePair, MetricRow, Outcome, RunComparison
from spbench.report.run_conditions import conditions_of
from spbench.stats.difference import (
    LEVEL,
    Difference,
    chance_of_either,
    difference,
    discoveries,
    floor_of,
    least_launches,
)
from spbench.suites.expand import show

ALIKE = 0.05
"""Values of which the larger is at most this share above the smaller are alike."""
TOLERANCE = 0.02
"""A difference of at most this share is of no interest, however certain it is."""
TOLERANCE_WITHOUT_PAST = 0.05
"""The same while too few earlier runs show how much runs differ: launches of one run do not."""
SAMPLED_ALIKE = 0.01
"""What follows from the time differs by less: rates have the time of the slowest rank's median."""
RESOLUTION = 0.10
"""Two are called the same where a difference of more than this share is ruled out."""
Past = Callable[[str, str], Sequence[Sequence[float]]]
"""The launches of earlier runs, run by run, by case and metric."""
_Sides = tuple[Sequence[float], Sequence[float]]


def nothing_past(case: str, metric: str) -> Sequence[Sequence[float]]:
    """Return nothing: no earlier launches are known."""
    return ()


def compare(
    a: RecordedRun,
    b: RecordedRun,
    past: Past = nothing_past,
    *,
    unlike: str | None = None,
    force: bool = False,
) -> RunComparison:
    """Compare what two runs measured.

    Headline metrics of all cases are judged together: of those that are called different, at most
    5 % are equal, on average. Any other metric is judged by itself.

    Args:
        a: The run to compare with.
        b: The run that is judged.
        past: What is known of earlier launches of the same cases on the same machines.
        unlike: Why the two runs' machines cannot be compared.
        force: Whether cases are compared although their parameters or ranks differ.
    """
    common = [(case, b.cases[id_]) for id_, case in a.cases.items() if id_ in b.cases]
    pairs = [pair_of(*both, past, unlike, force=force) for both in common]
    found = found_among(chances(pairs))
    cases = tuple(judged(pair, found) for pair in pairs)
    return RunComparison(
        a=a.summary,
        b=b.summary,
        cases=cases,
        judgements=tuple(judge_cases(a, b, {pair.id: pair for pair in cases})),
        only_a=tuple(id_ for id_ in a.cases if id_ not in b.cases),
        only_b=tuple(id_ for id_ in b.cases if id_ not in a.cases),
        conditions=(conditions_of(a), conditions_of(b)),
        machines=different_machines(a, b),
        versions=_different_versions(common),
        references=_reference_ratios(common),
    )


def _reference_ratios(common: Iterable[tuple[CasePart, CasePart]]) -> dict[str, float]:
    """Return the ratio of the references of both times, b over a, by case."""
    ratios = {}
    for a, b in common:
        values = [side.limits[HEADLINE].value for side in (a, b) if HEADLINE in side.limits]
        known = [value for value in values if value is not None and value > 0]
        if len(known) == 2:
            ratios[a.id] = known[1] / known[0]
    return ratios


def _different_versions(
    common: Iterable[tuple[CasePart, CasePart]],
) -> dict[str, tuple[str, ...]]:
    """Return the cases with different versions of their benchmark, by a clause on the versions."""
    versions: dict[str, tuple[str, ...]] = {}
    for a, b in common:
        if a.benchmark == b.benchmark and a.version != b.version:
            clause = f"{a.benchmark} has version {a.version} in a, {b.version} in b"
            versions[clause] = (*versions.get(clause, ()), a.id)
    return versions


def chances(pairs: Iterable[CasePair]) -> dict[str, float]:
    """Return by case how likely chance explains its headline metric, where that is judged."""
    return {
        pair.id: row.chance
        for pair in pairs
        for row in pair.rows
        if _counts(row) and row.chance is not None
    }


def found_among(chances: Mapping[str, float]) -> dict[str, bool]:
    """Say by case whether its headline metric differs, all of them judged together."""
    return dict(zip(chances, discoveries(list(chances.values())), strict=True))


def _counts(row: MetricRow) -> bool:
    return row.metric == HEADLINE and row.outcome is None and row.reason is None


def pair_of(
    a: CasePart, b: CasePart, past: Past, unlike: str | None = None, *, force: bool = False
) -> CasePair:
    """Return a case of two runs; rows that can be judged have a chance, and no outcome yet."""
    wrong = [f"{why} in {run}" for run, case in (("a", a), ("b", b)) if (why := unfit(case))]
    if a.version != b.version:
        unlike = f"version {a.version} of {a.benchmark} in a, {b.version} in b"
    elif not force and unlike is None:
        unlike = "; ".join(_other_work(a, b)) or None
    rows = [
        _row(a, b, name, past, " and ".join(wrong), unlike)
        for name in dict.fromkeys((*a.metrics, *b.metrics))
    ]
    time = next((row for row in rows if row.metric == HEADLINE), None)
    return CasePair(
        id=a.id,
        status_a=a.status,
        status_b=b.status,
        differences=tuple(_differences(a, b)),
        broken=broken_reason(a, b) is not None,
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
        values = launches_of(case, row.metric)
        times = launches_of(case, HEADLINE)
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
    return "not set" if value is None else show(value)


def _differences(a: CasePart, b: CasePart) -> Iterator[str]:
    yield from _other_work(a, b)
    for run, case in (("a", a), ("b", b)):
        if case.noisy:
            yield f"noisy in {run}: {case.noisy}"
    yield from _other_values(a, b, DATA_ALONE)
    for run, mine, others in (("a", a.params, b.params), ("b", b.params, a.params)):
        alone = [
            f"{name}={show(value)}"
            for name, value in mine.items()
            if value is not None and name not in others
        ]
        if alone:
            yield f"only in {run}: {', '.join(alone)}"


def _row(
    a: CasePart, b: CasePart, name: str, past: Past, unfit: str, unlike: str | None
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
    sides = launches_of(a, name), launches_of(b, name)
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
    found = difference(*sides, known_past)
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
        chance=chance_of_either(found.chance, fastest.chance) if fastest else found.chance,
        fastest=fastest.ratio if fastest else None,
        by_fastest=fastest is not None and fastest.chance <= LEVEL < found.chance,
        past=found.past,
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
    if 2 * floor_of(len(medians[0]), len(medians[1])) > LEVEL:
        return None
    counts_a, counts_b = (
        case.metrics[HEADLINE].n * len(other) for case, other in ((a, medians[1]), (b, medians[0]))
    )
    known = all(len(case.fastest) == len(of) for case, of in ((a, medians[0]), (b, medians[1])))
    if not known or counts_a != counts_b or _no_ratio(a.fastest, b.fastest):
        return None
    return difference(a.fastest, b.fastest, past)


def launches_of(case: CasePart, name: str) -> list[float]:
    """Return a metric's value in each launch; an old report's repeats were of one launch."""
    return case.medians.get(name) or [case.metrics[name].value]


def _no_ratio(a: Sequence[float], b: Sequence[float]) -> str | None:
    for word, wrong in (("0", lambda value: value == 0), ("below 0", lambda value: value < 0)):
        runs = [run for run, values in (("a", a), ("b", b)) if any(map(wrong, values))]
        if runs:
            return f"{word} in {' and '.join(runs)}"
    return None


def judged(pair: CasePair, found: Mapping[str, bool]) -> CasePair:
    """Return a pair with the outcomes of its rows; ``found`` has all that are judged together."""

    def with_outcome(row: MetricRow) -> MetricRow:
        if row.chance is None or row.outcome is not None or row.reason is not None:
            return row
        headline = row.metric == HEADLINE
        different = found[pair.id] if headline else row.chance <= LEVEL
        return _with_outcome(row, row.chance, len(found) if headline else 1, different=different)

    rows = list(map(with_outcome, pair.rows))
    time = next((row for row in rows if row.metric == HEADLINE), None)
    return replace(pair, rows=tuple(_with_outcome_of_time(row, time) for row in rows))


def _with_outcome_of_time(row: MetricRow, time: MetricRow | None) -> MetricRow:
    """Return a row with the outcome of its case's time if it has an interval and no chance."""
    if time is None or row.interval is None or row.chance is not None:
        return row
    return replace(row, chance=time.chance, outcome=row.outcome or time.outcome)


def _with_outcome(row: MetricRow, chance: float, together: int, *, different: bool) -> MetricRow:
    assert row.ratio is not None
    if row.interval is None:
        return _by_factor(row, row.ratio, _too_few(row, together))
    low, high = row.interval
    ratio = row.fastest if row.by_fastest and row.fastest else row.ratio
    is_clear = row.by_fastest or not low <= 1 <= high
    if different and is_clear and max(ratio, 1 / ratio) > 1 + tolerance_of(row):
        why = f"by the fastest iteration of each launch, {ratio:.2f}x" if row.by_fastest else None
        return replace(row, outcome=_direction(row, ratio), reason=why)
    if max(high, 1 / low) <= 1 + RESOLUTION:
        return replace(row, outcome=Outcome.SAME)
    needed = least_launches(together)
    if chance <= LEVEL and not different and min(row.launches) < needed:
        why = f"with {together} cases {needed} launches a side would tell"
    else:
        why = f"the interval is {low:.2f} to {high:.2f}"
    return _by_factor(row, row.ratio, why)


def tolerance_of(row: MetricRow) -> float:
    """Return the share up to which a row's values are not called different."""
    return TOLERANCE if row.past else TOLERANCE_WITHOUT_PAST


def rules_out_slowdown(row: MetricRow) -> bool:
    """Return whether a time without outcome is at most `RESOLUTION` above the earlier one."""
    if row.interval is None or row.outcome != Outcome.TOO_FEW:
        return False
    return row.interval[1] <= 1 + RESOLUTION


def _direction(row: MetricRow, ratio: float) -> Outcome:
    return Outcome.BETTER if (ratio < 1) == (row.better == "lower") else Outcome.WORSE


def _by_factor(row: MetricRow, ratio: float, why_untold: str) -> MetricRow:
    """Return a row without a test result, judged if its ratio is beyond the deciding factor."""
    if row.factor is None or max(ratio, 1 / ratio) <= row.factor.value:
        return replace(row, outcome=Outcome.TOO_FEW, reason=why_untold)
    why = f"beyond a factor of {row.factor.value:.3g} ({row.factor.source})"
    return replace(row, outcome=_direction(row, ratio), by_factor=True, reason=why)


def _too_few(row: MetricRow, together: int) -> str:
    launches = f"{row.launches[0]} and {row.launches[1]} launches"
    needed = f"{least_launches(together)} a side would tell"
    if row.metric != HEADLINE:
        return f"{launches}; {needed}"
    if row.factor is None:
        return f"{launches} of a noisy case; {needed}"
    within = f"within a factor of {row.factor.value:.3g} ({row.factor.source})"
    return f"{launches}; {within}; {needed}"
