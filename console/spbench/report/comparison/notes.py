"""The text around the table of a comparison: warnings, the summary, and notes.

All views print the same text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from spbench.record.metric_names import format_metric_name, list_separate_metrics
from spbench.record.number_formatting import format_factor
from spbench.report.comparison.compare import (
    TOLERANCE,
    TOLERANCE_WITHOUT_PAST,
    choose_tolerance,
)
from spbench.report.comparison.model import (
    HEADLINE,
    OUTCOMES,
    CasePair,
    JudgementKind,
    Outcome,
    RunComparison,
    compute_overall,
)
from spbench.report.comparison.unjudged import (
    find_not_slower,
    format_exact_percent,
    join_case_ids,
    unjudged_notes,
)
from spbench.stats.difference import MIN_PAST_RUNS
from spbench_core.events.statuses import CaseStatus, RunStatus
from spbench_core.number_text import format_quantity

MAX_BROKEN = 8
"""The largest number of reasons of broken cases that are printed."""
_TIMES = "Times: the slowest rank of each iteration, then the median. b/a below 1: b is faster."
_INTERVALS = "95 % interval: the range of b/a that differences between launches allow."
_WIDENED = "95 % interval: the range of b/a that differences of launches and earlier runs allow."
_RULES = (
    "same: a difference above 10 % is ruled out; better, worse: a and b differ by more than {}, "
    "and not by chance by a rank test of medians and of fastest iterations, corrected for the "
    "number of cases."
)
_ONE_BY_ONE = (
    "Metrics other than time are tested one by one, so that 1 of 20 equal ones differs by chance; "
    "efficiencies and speed-ups follow from the times and have no interval. not judged: neither a "
    "difference nor its absence is shown. No outcome: neither way is better."
)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_STATUS_TEXTS: Mapping[str, str] = {
    RunStatus.RUNNING: "is still running",
    RunStatus.UNFINISHED: "did not end",
    RunStatus.CANCELLED: "was cancelled",
}
_DISTURBED = "~: such times differ from run to run, so that the ratio may not be that of the code."
_QUIET = "For reliable times, run again on a quiet machine with a core for each rank."


def comparison_warnings(comparison: RunComparison) -> list[str]:
    """Return differences between two runs other than their code."""
    warnings = []
    if comparison.a.id == comparison.b.id:
        warnings.append("a and b are the same run, so that every ratio is 1")
    warnings += _generate_status_warnings(comparison)
    warnings += _generate_fault_warnings(comparison)
    if comparison.machines:
        warnings.append(f"machines or libraries differ: {comparison.machines}")
    if comparison.versions:
        warnings.append(f"benchmark versions differ: {'; '.join(comparison.versions)}")
    return warnings


def _generate_status_warnings(comparison: RunComparison) -> Iterator[str]:
    for name, run in (("a", comparison.a), ("b", comparison.b)):
        if text := _STATUS_TEXTS.get(run.status):
            yield f"run {name} {text}, so that results of cases may be missing"


def _generate_fault_warnings(comparison: RunComparison) -> Iterator[str]:
    faults_a, faults_b = (conditions.faults for conditions in comparison.conditions)
    if faults_a and sorted(faults_a) == sorted(faults_b):
        yield f"both runs were made with the planted {_join_faults(faults_a)}"
        return
    for name, faults in (("a", faults_a), ("b", faults_b)):
        if faults:
            yield f"run {name} was made with the planted {_join_faults(faults)}"


def _join_faults(faults: Sequence[str]) -> str:
    return f"{'fault' if len(faults) == 1 else 'faults'} {', '.join(faults)}"


def comparison_summary(comparison: RunComparison) -> str:
    """Return a count of cases, ``3 of 4 cases judged (1 worse, 2 same), 1 broken``.

    Cases that are not slower have their own count. It comes first if no case is judged.
    """
    count_by_outcome = Counter(
        case.outcome for case in comparison.list_judged(JudgementKind.JUDGED)
    )
    outcomes = [
        f"{count_by_outcome[outcome]} {outcome}"
        for outcome in OUTCOMES
        if count_by_outcome[outcome]
    ]
    detail = f" ({', '.join(outcomes)})" if outcomes else ""
    cases = format_quantity(len(comparison.judgements), "case")
    not_slower = len(find_not_slower(comparison))
    if not_slower and not outcomes:
        count_texts = [f"{not_slower} of {cases} not slower"]
    else:
        count_texts = [f"{count_by_outcome.total()} of {cases} judged{detail}"]
        count_texts += [f"{not_slower} not slower"] if not_slower else []
    if not_judged := len(comparison.list_judged(JudgementKind.UNJUDGED)) - not_slower:
        count_texts.append(f"{not_judged} not judged")
    if broken := comparison.list_judged(JudgementKind.BROKEN):
        count_texts.append(f"{len(broken)} broken")
    return ", ".join(count_texts)


def comparison_notes(comparison: RunComparison) -> list[str]:
    """Return the notes on broken and unjudged cases, remarks, noise and the mean."""
    notes = [
        *broken_notes(comparison),
        *unjudged_notes(comparison),
        *_generate_judged_notes(comparison),
        *noise_notes(comparison),
    ]
    overall = compute_overall(comparison)
    if overall is None or not comparison.list_judged(JudgementKind.JUDGED):
        return notes  # without judged cases, the mean of their ratios has no meaning
    return [*notes, overall.sentence]


def table_notes(comparison: RunComparison, *, all_metrics: bool = False) -> list[str]:
    """Return explanations of the table's numbers, which follow all other notes."""
    notes = [_TIMES]
    launches = {row.launches for row in comparison.rows if row.interval}
    if launches:
        has_past = any(row.past for row in comparison.rows if row.interval)
        notes.append(_WIDENED if has_past else _INTERVALS)
    if len(launches) == 1:
        launches_a, launches_b = launches.pop()
        notes[-1] += f" Launches: {launches_a} in a, {launches_b} in b."
    if comparison.list_judged(JudgementKind.JUDGED):
        rows = [row for row in comparison.rows if row.metric == HEADLINE and row.interval]
        tolerances = sorted({choose_tolerance(row) for row in rows}) or [TOLERANCE_WITHOUT_PAST]
        notes.append(_RULES.format(" or ".join(map(format_exact_percent, tolerances))))
    if all_metrics:
        notes.append(_ONE_BY_ONE)
        separate_metrics = [
            format_metric_name(row.metric, row.unit)
            for pair in comparison.cases
            for row in pair.rows
            if row.metric in list_separate_metrics(pair.benchmark)
        ]
        if separate_metrics:
            names = ", ".join(dict.fromkeys(separate_metrics))
            notes.append(f"Measured in other loops, not parts of the time: {names}.")
    return notes


def broken_notes(comparison: RunComparison) -> Iterator[str]:
    """Yield the reasons why cases are broken in b, each reason once."""
    cases_by_reason: dict[str, list[str]] = {}
    for case in comparison.list_judged(JudgementKind.BROKEN):
        cases_by_reason.setdefault(str(case.reason).rstrip("."), []).append(case.case)
    for reason, cases in list(cases_by_reason.items())[:MAX_BROKEN]:
        yield f"Broken in b, {reason}: {join_case_ids(cases)}."
    hidden_cases = list(cases_by_reason.values())[MAX_BROKEN:]
    if count := sum(map(len, hidden_cases)):
        yield f"Broken in b, too: {format_quantity(count, 'more case')}."
    if cases_by_reason:
        yield f"See `spbench results show {comparison.b.id}` for the details."


def noise_notes(comparison: RunComparison) -> Iterator[str]:
    """Yield a note for each run with noisy cases, and one on ranks that share cores."""
    common = {pair.id for pair in comparison.cases}
    crowded_texts = []
    is_disturbed = False
    for name, conditions in zip("ab", comparison.conditions, strict=True):
        reason_by_case = {id_: reason for id_, reason in conditions.noise.items() if id_ in common}
        if reason_by_case:
            is_disturbed = True
            yield _make_noise_note(name, reason_by_case)
        if count := len(conditions.crowded & common):
            crowded_texts.append(f"in {name} ({format_quantity(count, 'case')})")
    if crowded_texts:
        yield f"More ranks than cores {' and '.join(crowded_texts)}."
    if is_disturbed or crowded_texts:
        yield f"{_DISTURBED} {_QUIET}"


def _make_noise_note(name: str, reason_by_case: Mapping[str, str]) -> str:
    """Return a note on the noise of a run, with the reason of the most disturbed case."""
    noisiest_case = max(reason_by_case, key=lambda id_: _find_largest_percent(reason_by_case[id_]))
    reason = _PERCENT.sub(r"\1 %", reason_by_case[noisiest_case])
    count = format_quantity(len(reason_by_case), "case")
    return f"Noise in {name} ({count}), most in {noisiest_case}: {reason}."


def _find_largest_percent(reason: str) -> float:
    return max(map(float, _PERCENT.findall(reason)), default=0.0)


def _generate_judged_notes(comparison: RunComparison) -> Iterator[str]:
    """Yield remarks on cases that were compared, judged or not."""
    judged_ids = {case.case for case in comparison.list_judged(JudgementKind.JUDGED)}
    failed_ids_by_run: dict[str, list[str]] = {"a": [], "b": []}
    by_fastest_texts = []
    by_factor_texts = []
    for pair in comparison.cases:
        row = pair.headline
        if row is None or pair.id not in judged_ids:
            continue
        for run, status in (("a", pair.status_a), ("b", pair.status_b)):
            if status != CaseStatus.PASSED:
                failed_ids_by_run[run].append(pair.id)
        if row.by_fastest and row.fastest and row.outcome != Outcome.SAME:
            by_fastest_texts.append(f"{pair.id} ({format_factor(row.fastest)})")
        if row.by_factor and row.factor:
            by_factor_texts.append(f"{pair.id} (beyond {format_factor(row.factor.value)})")
    if by_fastest_texts:
        yield (
            "Judged by the fastest iteration of each launch, since medians scatter more: "
            f"{join_case_ids(by_fastest_texts)}."
        )
    if by_factor_texts:
        names = join_case_ids(by_factor_texts)
        yield f"Judged with few launches, since the ratio is large: {names}."
    yield from _generate_past_notes(comparison)
    yield from _generate_reference_notes(comparison)
    for run, cases in failed_ids_by_run.items():
        if cases:
            reason = "by an expectation or a planted fault" if run == "a" else "by a planted fault"
            yield f"Failed in {run} {reason}, but compared: {join_case_ids(cases)}."
    yield from _generate_settings_notes(comparison)


def _generate_past_notes(comparison: RunComparison) -> Iterator[str]:
    """Yield notes on cases with and without an interval widened by earlier runs."""
    time_row_by_case = {row.case: row for row in comparison.rows if row.metric == HEADLINE}
    widened_texts = [
        f"{case} ({format_quantity(row.past, 'run')})"
        for case, row in time_row_by_case.items()
        if row.past and row.interval
    ]
    if widened_texts:
        yield (
            "Interval widened, because earlier runs on these machines differ that much: "
            f"{join_case_ids(widened_texts)}."
        )
    provisional_ids = [
        case.case
        for case in comparison.list_judged(JudgementKind.JUDGED)
        if case.outcome != Outcome.SAME
        and (row := time_row_by_case.get(case.case)) is not None
        and not (row.past or row.by_factor)
    ]
    if provisional_ids:
        yield (
            f"Provisional: {join_case_ids(provisional_ids)}. "
            f"Fewer than {MIN_PAST_RUNS} earlier runs show how much times change from run to run; "
            "run both sides again to confirm."
        )


def _generate_reference_notes(comparison: RunComparison) -> Iterator[str]:
    """Yield a note on cases with references that changed like their times.

    This happens if the machine has changed. The criterion is that the logarithm of the reference's
    ratio is at least half of that of the time. A planted fault may slow down references, too. So
    there is no note for runs with faults.
    """
    if any(conditions.faults for conditions in comparison.conditions):
        return
    time_ratio_by_case = {row.case: row.ratio for row in comparison.rows if row.metric == HEADLINE}
    changed_alike_texts = []
    for case in comparison.list_judged(JudgementKind.JUDGED):
        reference_ratio = comparison.references.get(case.case)
        time_ratio = time_ratio_by_case.get(case.case)
        if reference_ratio is None or not time_ratio or case.outcome == Outcome.SAME:
            continue
        log_reference_ratio = math.log(reference_ratio)
        log_time_ratio = math.log(time_ratio)
        is_large = abs(log_reference_ratio) > math.log1p(TOLERANCE)
        is_half_of_time = 2 * abs(log_reference_ratio) >= abs(log_time_ratio)
        if is_large and is_half_of_time and log_reference_ratio * log_time_ratio > 0:
            changed_alike_texts.append(f"{case.case} ({format_factor(reference_ratio)})")
    if changed_alike_texts:
        yield (
            "Their references changed alike, so that the machine may have changed rather than the "
            f"code: {join_case_ids(changed_alike_texts)}."
        )


def _generate_settings_notes(comparison: RunComparison) -> Iterator[str]:
    cases_by_difference: dict[str, list[str]] = {}
    for pair in comparison.cases:
        for difference in _generate_other_differences(comparison, pair):
            cases_by_difference.setdefault(difference, []).append(pair.id)
    for difference, cases in cases_by_difference.items():
        yield f"Other settings, {difference}: {join_case_ids(cases)}."


def _generate_other_differences(comparison: RunComparison, pair: CasePair) -> Iterator[str]:
    """Yield the differences of a case that are in no other note."""
    noise_clauses = {
        f"noisy in {name}: {conditions.noise[pair.id]}"
        for name, conditions in zip("ab", comparison.conditions, strict=True)
        if pair.id in conditions.noise
    }
    row = pair.headline
    reason = row.reason if row is not None and row.reason else ""
    for difference in pair.differences:
        if difference not in noise_clauses and difference not in reason:
            yield difference
