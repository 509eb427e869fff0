"""Two runs side by side: per case and metric their ratio with its interval, and a verdict.

A launch is the unit: see `difference`. Of a case's time two values of each launch are tested: its
median, and its fastest iteration, which a neighbour's load on the machine moves far less. With too
few launches for a test, a time is judged only beyond a `deciding_factor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from spbench.report.comparison.conditions import describe_machine_differences as different_machines
from spbench.report.comparison.conditions import find_conditions
from spbench.report.comparison.judgement import judge_cases
from spbench.report.comparison.model import HEADLINE, CasePair, MetricRow, Outcome, RunComparison
from spbench.report.comparison.pairs import pair_cases
from spbench.report.comparison.past import PastLaunches, no_past_launches
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.stats.difference import (
    LEVEL,
    find_discoveries,
    least_launches,
)

SIMILAR = 0.05
"""Values of which the larger is at most this share above the smaller are alike."""
TOLERANCE = 0.02
"""A difference of at most this share is of no interest, however certain it is."""
TOLERANCE_WITHOUT_PAST = 0.05
"""The same while too few earlier runs show how much runs differ: launches of one run do not."""
RESOLUTION = 0.10
"""Two are called the same where a difference of more than this share is ruled out."""


def compare(
    a: RecordedRun,
    b: RecordedRun,
    past: PastLaunches = no_past_launches,
    *,
    mismatch: str | None = None,
    force: bool = False,
) -> RunComparison:
    """Compare what two runs measured.

    Headline metrics of all cases are judged together: of those that are called different, at most
    5 % are equal, on average. Any other metric is judged by itself.

    Args:
        a: The run to compare with.
        b: The run that is judged.
        past: What is known of earlier launches of the same cases on the same machines.
        mismatch: Why the two runs' machines cannot be compared.
        force: Whether cases are compared although their parameters or ranks differ.
    """
    common = [(case, b.cases[id_]) for id_, case in a.cases.items() if id_ in b.cases]
    pairs = [pair_cases(*both, past, mismatch, force=force) for both in common]
    found = find_different(collect_chances(pairs))
    cases = tuple(judge_pair(pair, found) for pair in pairs)
    return RunComparison(
        a=a.summary,
        b=b.summary,
        cases=cases,
        judgements=tuple(judge_cases(a, b, {pair.id: pair for pair in cases})),
        only_a=tuple(id_ for id_ in a.cases if id_ not in b.cases),
        only_b=tuple(id_ for id_ in b.cases if id_ not in a.cases),
        conditions=(find_conditions(a), find_conditions(b)),
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


def collect_chances(pairs: Iterable[CasePair]) -> dict[str, float]:
    """Return by case how likely chance explains its headline metric, where that is judged."""
    return {
        pair.id: row.chance
        for pair in pairs
        for row in pair.rows
        if _counts(row) and row.chance is not None
    }


def find_different(chances: Mapping[str, float]) -> dict[str, bool]:
    """Say by case whether its headline metric differs, all of them judged together."""
    return dict(zip(chances, find_discoveries(list(chances.values())), strict=True))


def _counts(row: MetricRow) -> bool:
    return row.metric == HEADLINE and row.outcome is None and row.reason is None


def judge_pair(pair: CasePair, found: Mapping[str, bool]) -> CasePair:
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
    if different and is_clear and max(ratio, 1 / ratio) > 1 + choose_tolerance(row):
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


def choose_tolerance(row: MetricRow) -> float:
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
