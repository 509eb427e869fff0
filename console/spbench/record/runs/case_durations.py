"""Durations of the cases of a run, and of the starts of its jobs, from the cases of a report.

A report has the start and the end of each case. If each repeat of a case is a launch of its own,
other cases run between them: then the duration of one repeat follows from its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spbench_core.events.statuses import CaseStatus


@dataclass(frozen=True, slots=True)
class CaseTimes:
    """The times of a case as a report has them, in seconds since the epoch.

    Attributes:
        launches: The jobs that ran its repeats, in order.
        repeats: Repeats in each of these launches.
    """

    id: str
    status: CaseStatus
    started: float
    finished: float
    launches: tuple[int, ...]
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class CaseDuration:
    """The duration of a case.

    Attributes:
        seconds: One repeat, without the start of its job.
        launches: The number of launches of the case.
        start: From the launch of its job until the case began; None: it was not the first there.
    """

    seconds: float
    launches: int
    start: float | None = None


def measure_durations(
    run_started: float | None, cases: Iterable[CaseTimes]
) -> dict[str, CaseDuration]:
    """Return the durations of the cases that ran to their end, by their ids.

    Args:
        run_started: The start of the run, in seconds since the epoch.
        cases: The cases of the run that have begun.
    """
    ordered = sorted(cases, key=lambda case: (case.started, case.finished))
    durations: dict[str, CaseDuration] = {}
    starts: dict[tuple[int, ...], float] = {}  # by the number of the job
    previous: CaseTimes | None = None
    end = run_started
    for case in ordered:
        first = previous is None or previous.launches[:1] != case.launches[:1]
        undisturbed = previous is None or previous.status.is_measured
        start = None
        if first and undisturbed and end is not None and case.started >= end:
            start = case.started - end
        if start is not None:
            starts[case.launches[:1]] = start
        duration = _repeat_seconds(case, ordered, starts.get(case.launches[:1], 0.0))
        if duration is not None and case.status.is_measured:
            launches = max(1, len(case.launches))
            durations[case.id] = CaseDuration(duration / case.repeats, launches, start)
        previous = case
        end = case.finished if duration is None else case.started + duration
    return durations


def _repeat_seconds(case: CaseTimes, ordered: Sequence[CaseTimes], start: float) -> float | None:
    """Return the seconds of a case in one launch; None if its times are wrong."""
    whole = case.finished - case.started
    if whole < 0:
        return None
    if len(case.launches) <= 1:
        return whole
    between = min(_neighbour_times(case, ordered), default=None)
    return max(0.0, _alone_seconds(case, ordered, start)) if between is None else between


def _neighbour_times(case: CaseTimes, ordered: Sequence[CaseTimes]) -> Iterator[float]:
    """Yield the time until the next case of the first launch, and since the last case before it."""
    neighbours = [other for other in ordered if other.launches[:1] == case.launches[:1]]
    for before, after in pairwise(neighbours):
        if before is case:
            yield after.started - case.started
    last = sorted(
        (other for other in ordered if other.launches[-1:] == case.launches[-1:]),
        key=lambda other: other.finished,
    )
    for before, after in pairwise(last):
        if after is case:
            yield case.finished - before.finished


def _alone_seconds(case: CaseTimes, ordered: Sequence[CaseTimes], start: float) -> float:
    """Return the seconds of a case without neighbours in its first and its last launch.

    The starts of jobs that follow are taken to be as long as that of its own.
    """
    after = [other.started for other in ordered if other.started > case.started]
    if after:
        return min(after) - case.started - start
    before = [other.finished for other in ordered if case.started < other.finished < case.finished]
    if before:
        return case.finished - max(before) - start
    launches = len(case.launches)
    return (case.finished - case.started - (launches - 1) * start) / launches
