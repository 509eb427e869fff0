"""The summary of a run that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spbench.record.case_state import CaseState
from spbench.record.noise import describe_case_noise
from spbench.record.number_formatting import format_duration
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity


def describe_outcome(cases: Iterable[CaseState]) -> str:
    """Return ``9 cases: 7 passed, 2 failed, 1 noisy; longest: memory, 2.1 s``.

    The longest case is the one that took the most time, with its preparation and checks.
    """
    all_cases = list(cases)
    counts = Counter(case.status for case in all_cases)
    parts = [f"{counts[status]} {status}" for status in CaseStatus if counts[status]]
    noisy_count = sum(describe_case_noise(case) is not None for case in all_cases)
    if noisy_count:
        parts.append(f"{noisy_count} noisy")
    summary = f"{format_quantity(len(all_cases), 'case')}: {', '.join(parts)}"
    durations = {case.id: seconds for case in all_cases if (seconds := _measure(case)) is not None}
    if len(durations) < 2:
        return summary
    longest = max(durations, key=durations.__getitem__)
    return f"{summary}; longest: {longest}, {format_duration(durations[longest])}"


def _measure(case: CaseState) -> float | None:
    """Return the time from the start to the end of a case, in seconds."""
    started = case.execution.started
    finished = case.execution.finished
    return None if started is None or finished is None else finished - started
