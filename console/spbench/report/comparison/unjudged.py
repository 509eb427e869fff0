"""The cases of a comparison without an outcome, with reasons and advice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spbench.record.number_formatting import format_factor, format_percent
from spbench.report.comparison.compare import RESOLUTION, choose_tolerance, rules_out_slowdown
from spbench.report.comparison.model import (
    CasePair,
    JudgementKind,
    MetricRow,
    Outcome,
    RunComparison,
)
from spbench.stats.difference import MIN_PAST_RUNS
from spbench_core.events.statuses import RunStatus

MAX_NAMED = 6
"""The largest number of cases that a note names."""
_SCATTERED = (
    "Use a larger `repeat` or a quieter machine. `spbench gate check` shows how many launches find "
    "which slowdown."
)
_FORCE = "Use `spbench compare --force` to compare anyway."


ANY_LAUNCH_ADVICE = re.compile(r"Run (?:both sides|[ab] again) with `--set repeat=\d+`\.")
"""Each text of `LackingLaunches.advice`."""


class LackingLaunches(NamedTuple):
    """The launches that each side needs, and the sides with fewer."""

    needed: int
    in_a: bool
    in_b: bool

    @property
    def advice(self) -> str:
        """The advice with an option of the command line."""
        sides = "both sides" if self.in_a and self.in_b else f"{'a' if self.in_a else 'b'} again"
        return f"Run {sides} with `--set repeat={self.needed}`."


class _Reason(NamedTuple):
    """The reason why a case is not judged, and advice."""

    clause: str
    advice: tuple[str, ...] = ()


def unjudged_notes(comparison: RunComparison) -> Iterator[str]:
    """Yield the reasons why cases are not judged, and advice, each once."""
    printed: set[str] = set()
    for (reason, advice), cases in _group_unjudged_cases(comparison).items():
        new_advice = [text for text in advice if text not in printed]
        printed.update(new_advice)
        yield " ".join([f"Not judged, {reason}: {join_case_ids(cases)}.", *new_advice])
    yield from _generate_few_launches_notes(comparison)
    if not_slower := find_not_slower(comparison):
        limit_text = format_percent(RESOLUTION)
        yield (
            f"Not slower, a slowdown above {limit_text} is ruled out, but not a speed-up: "
            f"{join_case_ids(not_slower)}. `--fail-on worse` accepts that."
        )
    judged = {judgement.case for judgement in comparison.judgements}
    if unselected := [id_ for id_ in comparison.only_a if id_ not in judged]:
        yield f"Not selected in b: {join_case_ids(unselected)}."


def find_not_slower(comparison: RunComparison) -> list[str]:
    """Return the cases without an outcome that are not slower in b."""
    return [
        pair.id
        for pair in _list_unjudged_pairs(comparison)
        if not pair.cancelled and pair.headline is not None and rules_out_slowdown(pair.headline)
    ]


def _list_unjudged_pairs(comparison: RunComparison) -> list[CasePair]:
    unjudged = {case.case for case in comparison.list_judged(JudgementKind.UNJUDGED)}
    return [pair for pair in comparison.cases if pair.id in unjudged]


def case_reasons(comparison: RunComparison) -> dict[str, str]:
    """Return the reasons why cases are not judged, or are broken, by case id."""
    reason_by_case = {
        case: reason.clause
        for reason, cases in _group_unjudged_cases(comparison).items()
        for case in cases
    }
    broken = comparison.list_judged(JudgementKind.BROKEN)
    return reason_by_case | {case.case: str(case.reason) for case in broken}


def find_lacking_launches(comparison: RunComparison) -> LackingLaunches | None:
    """Return the needed launches and the sides with fewer; None if both have them."""
    headlines = [pair.headline for pair in _list_unjudged_pairs(comparison)]
    rows = [row for row in headlines if row is not None and _has_few_launches(row, comparison)]
    return _compare_launches(rows, comparison.needed_launches) if rows else None


def _compare_launches(rows: Sequence[MetricRow], needed: int) -> LackingLaunches:
    fewest_a, fewest_b = (min(row.launches[side] for row in rows) for side in (0, 1))
    return LackingLaunches(needed, fewest_a < needed, fewest_b < needed)


def _has_few_launches(row: MetricRow, comparison: RunComparison) -> bool:
    return row.outcome == Outcome.TOO_FEW and min(row.launches) < comparison.needed_launches


def join_case_ids(ids: Sequence[str]) -> str:
    """Return case ids in one clause, such as ``a, b and 9 more``."""
    if len(ids) <= MAX_NAMED + 1:
        return ", ".join(ids)
    return f"{', '.join(ids[:MAX_NAMED])} and {len(ids) - MAX_NAMED} more"


def format_exact_percent(share: float) -> str:
    """Return an exact share, which is not a measurement, such as ``5 %``."""
    return f"{100 * share:g} %"


def _group_unjudged_cases(comparison: RunComparison) -> dict[_Reason, list[str]]:
    pair_by_case = {pair.id: pair for pair in comparison.cases}
    not_slower = set(find_not_slower(comparison))
    cases_by_reason: dict[_Reason, list[str]] = {}
    for case in comparison.list_judged(JudgementKind.UNJUDGED):
        if case.case in not_slower:
            continue
        pair = pair_by_case.get(case.case)
        if pair is None:
            only_run = "a" if case.case in comparison.only_a else "b"
            reason = _Reason(f"only in {only_run}", ("Run the same cases on both sides.",))
        elif pair.cancelled:
            reason = _Reason(pair.cancelled)
        elif pair.headline is None:
            reason = _Reason("time not measured")
        else:
            reason = _explain_row(pair.headline, comparison)
        cases_by_reason.setdefault(reason, []).append(case.case)
    return cases_by_reason


def _generate_few_launches_notes(comparison: RunComparison) -> Iterator[str]:
    """Yield the rule for cases with too few launches for a test."""
    few_launches_rows = [
        pair.headline
        for pair in _list_unjudged_pairs(comparison)
        if pair.headline is not None
        and pair.headline.outcome == Outcome.TOO_FEW
        and pair.headline.interval is None
    ]
    factors = [row.factor.value for row in few_launches_rows if row.factor is not None]
    has_noisy = len(factors) < len(few_launches_rows)
    if not factors:
        if has_noisy:
            yield "With fewer launches, noisy cases are never judged."
        return
    factor_texts = list(dict.fromkeys(map(format_factor, (min(factors), max(factors)))))
    condition = f"beyond {' to '.join(factor_texts)}"
    condition += ", depending on the case" if len(factor_texts) > 1 else ""
    if has_noisy:
        yield (
            "With fewer launches, noisy cases are never judged, "
            f"and others only if the ratio is {condition}."
        )
    else:
        yield f"With fewer launches, a case is judged only if its ratio is {condition}."


def _explain_row(row: MetricRow, comparison: RunComparison) -> _Reason:
    """Return the reason why a case's time has no outcome, and advice."""
    if row.outcome == Outcome.NOT_COMPARABLE:
        return _explain_incomparable(row, comparison)
    if row.outcome != Outcome.TOO_FEW:
        reason = row.reason or "no outcome"
        if row.ratio is None:
            return _Reason(f"no ratio of times ({reason})")
        advice = "Compare runs in which these cases pass."
        return _Reason(f"no valid result ({reason})", (advice,))
    needed = comparison.needed_launches
    if _has_few_launches(row, comparison):
        few_text = (
            f"too few launches ({row.launches[0]} in a, {row.launches[1]} in b, "
            f"{needed} per side needed)"
        )
        return _Reason(few_text, (_compare_launches([row], needed).advice,))
    is_clear = row.interval is not None and not row.interval[0] <= 1 <= row.interval[1]
    if is_clear and row.ratio and max(row.ratio, 1 / row.ratio) <= 1 + choose_tolerance(row):
        limit_text = format_exact_percent(choose_tolerance(row))
        return _Reason(
            f"a difference of at most {limit_text}, by which runs may differ",
            (f"{MIN_PAST_RUNS} earlier runs show by how much they do.",),
        )
    if is_clear:
        return _Reason("a difference that may be chance", (_SCATTERED,))
    clause = f"no clear difference, but one above {format_percent(RESOLUTION)} is possible"
    return _Reason(clause, (_SCATTERED,))


def _explain_incomparable(row: MetricRow, comparison: RunComparison) -> _Reason:
    if comparison.machines and row.reason == comparison.machines:
        baseline = "Set a baseline on these machines, or use `spbench compare --force`."
        advice = baseline if comparison.a.status == RunStatus.BASELINE else _FORCE
        return _Reason("other machines or libraries (see the warning)", (advice,))
    if any(row.case in cases for cases in comparison.versions.values()):
        advice = "Run both sides with the same version of spbench."
        return _Reason("other benchmark versions (see the warning)", (advice,))
    return _Reason(f"other parameters or ranks ({row.reason})", (_FORCE,))
