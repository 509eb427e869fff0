"""The summary of a run that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spbench.record.case_state import CaseState
from spbench.record.noise import describe_case_noise
from spbench.record.number_formatting import format_duration
from spbench.record.planted_faults import FaultOutcome, format_result_count
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

_Result = CaseStatus | FaultOutcome
_RESULTS: tuple[_Result, ...] = (
    CaseStatus.PASSED,
    FaultOutcome.FOUND,
    FaultOutcome.MISSED,
    *(status for status in CaseStatus if status is not CaseStatus.PASSED),
)


def describe_outcome(cases: Iterable[CaseState]) -> str:
    """Return ``9 cases: 7 passed, 2 failed; longest with setup: memory, 2.1 s``.

    The longest case is the one that took the most time, with its preparation and checks.
    """
    all_cases = list(cases)
    counts = count_results(all_cases)
    noisy_counts = Counter(_get_result(case) for case in all_cases if describe_case_noise(case))
    parts = [
        f"{format_result_count(count, result)}{_note_noisy(noisy_counts[result], count)}"
        for result, count in counts.items()
    ]
    summary = f"{format_quantity(len(all_cases), 'case')}: {', '.join(parts)}"
    durations = {case.id: seconds for case in all_cases if (seconds := _measure(case)) is not None}
    if len(durations) < 2:
        return summary
    longest = max(durations, key=durations.__getitem__)
    return f"{summary}; longest with setup: {longest}, {format_duration(durations[longest])}"


def count_results(cases: Iterable[CaseState]) -> dict[_Result, int]:
    """Return the number of cases by status, or by the outcome of their planted faults."""
    counts = Counter(map(_get_result, cases))
    return {result: counts[result] for result in _RESULTS if counts[result]}


def _get_result(case: CaseState) -> _Result:
    """Return the status of a case, or the outcome of its planted fault."""
    result = case.execution.status_text
    return case.status if result is CaseStatus.FLAKY else result


def _note_noisy(noisy_count: int, count: int) -> str:
    """Return how many cases of a status are noisy, in brackets; empty without any."""
    if not noisy_count:
        return ""
    return " (noisy)" if noisy_count == count else f" ({noisy_count} of them noisy)"


def _measure(case: CaseState) -> float | None:
    """Return the time from the start to the end of a case, in seconds."""
    started = case.execution.started
    finished = case.execution.finished
    return None if started is None or finished is None else finished - started
