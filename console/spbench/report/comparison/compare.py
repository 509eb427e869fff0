"""Compare two runs: the ratio of each metric, its interval, and an outcome.

The unit is a launch: see `stats.difference`. For times, two values of each launch are tested: its
median, and its fastest iteration, which other load on the machine affects far less. With too few
launches for a test, a time is judged only beyond a `deciding_factor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from spbench.report.comparison.conditions import (
    PastLaunches,
    describe_machine_differences,
    find_conditions,
    no_past_launches,
)
from spbench.report.comparison.judgement import judge_cases
from spbench.report.comparison.model import HEADLINE, CasePair, MetricRow, Outcome, RunComparison
from spbench.report.comparison.pairs import pair_cases
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.stats.difference import (
    SIGNIFICANCE_LEVEL,
    compute_min_launches,
    find_discoveries,
)

SIMILAR = 0.05
"""Two values are similar if the larger is at most this share above the smaller."""
TOLERANCE = 0.02
"""A difference of at most this share is of no interest, however significant it is."""
TOLERANCE_WITHOUT_PAST = 0.05
"""The tolerance with too few earlier runs: launches of one run do not show how much runs differ."""
RESOLUTION = 0.10
"""Two cases are the same if a difference of more than this share is ruled out."""


def compare(
    a: RecordedRun,
    b: RecordedRun,
    past_launches: PastLaunches = no_past_launches,
    *,
    mismatch: str | None = None,
    force: bool = False,
) -> RunComparison:
    """Compare the results of two runs.

    Headline metrics of all cases are judged together: on average, at most 5 % of those that are
    called different are equal. Other metrics are judged one by one.

    Args:
        a: The run to compare with.
        b: The run that is judged.
        past_launches: Earlier launches of the same cases on the same machines.
        mismatch: The reason why the machines of the two runs cannot be compared.
        force: Whether cases are compared although their parameters or ranks differ.
    """
    common = [(case, b.cases[id_]) for id_, case in a.cases.items() if id_ in b.cases]
    pairs = [
        pair_cases(case_a, case_b, past_launches, mismatch, force=force)
        for case_a, case_b in common
    ]
    is_different = find_different(collect_p_values(pairs))
    # All of them, since a case without a valid result now should be tested in the next run.
    num_timed = sum(HEADLINE in case_a.metrics for case_a, _ in common)
    cases = tuple(judge_pair(pair, is_different, num_timed) for pair in pairs)
    return RunComparison(
        a=a.summary,
        b=b.summary,
        cases=cases,
        judgements=tuple(judge_cases(a, b, {pair.id: pair for pair in cases})),
        only_a=tuple(id_ for id_ in a.cases if id_ not in b.cases),
        only_b=tuple(id_ for id_ in b.cases if id_ not in a.cases),
        conditions=(find_conditions(a), find_conditions(b)),
        machines=describe_machine_differences(a, b),
        versions=_find_different_versions(common),
        references=_compute_reference_ratios(common),
        needed_launches=compute_min_launches(max(1, num_timed)),
    )


def _compute_reference_ratios(common: Iterable[tuple[CasePart, CasePart]]) -> dict[str, float]:
    """Return the ratio of the references of both times, b over a, by case."""
    ratio_by_case = {}
    for a, b in common:
        references = [side.limits[HEADLINE].value for side in (a, b) if HEADLINE in side.limits]
        positive_references = [
            reference for reference in references if reference is not None and reference > 0
        ]
        if len(positive_references) == 2:
            ratio_by_case[a.id] = positive_references[1] / positive_references[0]
    return ratio_by_case


def _find_different_versions(
    common: Iterable[tuple[CasePart, CasePart]],
) -> dict[str, tuple[str, ...]]:
    """Return the cases with different benchmark versions, by a clause on the versions."""
    cases_by_clause: dict[str, tuple[str, ...]] = {}
    for a, b in common:
        if a.benchmark == b.benchmark and a.version != b.version:
            clause = f"{a.benchmark} has version {a.version} in a, {b.version} in b"
            cases_by_clause[clause] = (*cases_by_clause.get(clause, ()), a.id)
    return cases_by_clause


def collect_p_values(pairs: Iterable[CasePair]) -> dict[str, float]:
    """Return the p-value of each case's headline metric, for those that are judged."""
    return {
        pair.id: row.chance
        for pair in pairs
        for row in pair.rows
        if _is_judged_headline(row) and row.chance is not None
    }


def _is_judged_headline(row: MetricRow) -> bool:
    return row.metric == HEADLINE and row.outcome is None and row.reason is None


def find_different(p_values: Mapping[str, float]) -> dict[str, bool]:
    """Return for each case whether its headline metric differs, judged together."""
    return dict(zip(p_values, find_discoveries(list(p_values.values())), strict=True))


def judge_pair(
    pair: CasePair, is_different: Mapping[str, bool], num_timed: int | None = None
) -> CasePair:
    """Return a pair with the outcomes of its rows.

    Args:
        pair: The pair, with the p-values of its rows.
        is_different: The result of `find_different` for all cases that are judged together.
        num_timed: The number of cases with times in both runs, valid or not. Default: those that
            are judged together.
    """
    num_cases = max(1, len(is_different) if num_timed is None else num_timed)
    rows = []
    for row in pair.rows:
        if row.chance is None or row.outcome is not None or row.reason is not None:
            rows.append(row)
        elif row.metric == HEADLINE:
            rows.append(_judge_row(row, is_different[pair.id], num_cases))
        else:
            rows.append(_judge_row(row, row.chance <= SIGNIFICANCE_LEVEL, num_cases))
    time_row = next((row for row in rows if row.metric == HEADLINE), None)
    return replace(pair, rows=tuple(_use_outcome_of_time(row, time_row) for row in rows))


def _use_outcome_of_time(row: MetricRow, time_row: MetricRow | None) -> MetricRow:
    """Return a row with the outcome of the time if it has an interval and no p-value."""
    if time_row is None or row.interval is None or row.chance is not None:
        return row
    return replace(row, chance=time_row.chance, outcome=row.outcome or time_row.outcome)


def _judge_row(row: MetricRow, is_different: bool, num_cases: int) -> MetricRow:
    """Return a row with an outcome.

    Args:
        row: The row, with a ratio and a p-value.
        is_different: Whether the test found a difference.
        num_cases: The number of cases for which the text gives the needed launches.
    """
    assert row.ratio is not None
    assert row.chance is not None
    if row.interval is None:
        return _judge_without_test(row, row.ratio, _explain_too_few(row, num_cases))

    low, high = row.interval
    ratio = row.fastest if row.by_fastest and row.fastest else row.ratio
    is_clear = row.by_fastest or not low <= 1 <= high
    if is_different and is_clear and max(ratio, 1 / ratio) > 1 + choose_tolerance(row):
        reason = None
        if row.by_fastest:
            reason = f"by the fastest iteration of each launch, {ratio:.2f}x"
        return replace(row, outcome=_choose_direction(row, ratio), reason=reason)
    if max(high, 1 / low) <= 1 + RESOLUTION:
        return replace(row, outcome=Outcome.SAME)

    needed = compute_min_launches(num_cases)
    if row.chance <= SIGNIFICANCE_LEVEL and not is_different and min(row.launches) < needed:
        reason = f"{needed} launches per side needed for {num_cases} cases"
    else:
        reason = f"the interval is {low:.2f} to {high:.2f}"
    return _judge_without_test(row, row.ratio, reason)


def choose_tolerance(row: MetricRow) -> float:
    """Return the share up to which the values of a row are not called different."""
    return TOLERANCE if row.past else TOLERANCE_WITHOUT_PAST


def rules_out_slowdown(row: MetricRow) -> bool:
    """Return whether a slowdown above `RESOLUTION` is ruled out for an unjudged time."""
    if row.interval is None or row.outcome != Outcome.TOO_FEW:
        return False
    return row.interval[1] <= 1 + RESOLUTION


def _choose_direction(row: MetricRow, ratio: float) -> Outcome:
    return Outcome.BETTER if (ratio < 1) == (row.better == "lower") else Outcome.WORSE


def _judge_without_test(row: MetricRow, ratio: float, reason: str) -> MetricRow:
    """Return a row that the test could not judge, judged by the deciding factor.

    `reason` is the reason why it has no outcome if its ratio is within the factor.
    """
    if row.factor is None or max(ratio, 1 / ratio) <= row.factor.value:
        return replace(row, outcome=Outcome.TOO_FEW, reason=reason)
    reason = f"beyond a factor of {row.factor.value:.3g} ({row.factor.source})"
    return replace(row, outcome=_choose_direction(row, ratio), by_factor=True, reason=reason)


def _explain_too_few(row: MetricRow, num_cases: int) -> str:
    launches = f"{row.launches[0]} and {row.launches[1]} launches"
    needed_text = f"{compute_min_launches(num_cases)} per side needed"
    if row.metric != HEADLINE:
        return f"{launches}; {needed_text}"
    if row.factor is None:
        return f"{launches} of a noisy case; {needed_text}"
    within_text = f"within a factor of {row.factor.value:.3g} ({row.factor.source})"
    return f"{launches}; {within_text}; {needed_text}"
