"""Durations of the cases of a run, and the hash of a case's work.

A report has the start and the end of each case. If each repeat of a case is a separate launch,
other cases run between them. The duration of one repeat then follows from its neighbours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spbench_core.events.statuses import CaseStatus

UNTIMED_PARAMS = ("seed", "warmup")
"""Parameters that change numbers or dropped iterations, but not the times."""
_INJECT = "--inject"
_HASH_LENGTH = 16


@dataclass(frozen=True, slots=True)
class CaseTimes:
    """The times of a case in a report, in seconds since the epoch.

    Attributes:
        launches: The jobs that ran its repeats, in order.
        repeats: The number of repeats in each of these launches.
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
        seconds: The duration of one repeat, without the start of its job.
        launches: The number of launches of the case.
        start: Seconds from the launch of its job until it began; None if it was not the first case.
    """

    seconds: float
    launches: int
    start: float | None = None


def measure_durations(
    run_started: float | None, cases: Iterable[CaseTimes]
) -> dict[str, CaseDuration]:
    """Return the durations of the cases that ran to their end, by id.

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
        is_first = previous is None or previous.launches[:1] != case.launches[:1]
        undisturbed = previous is None or previous.status.is_measured
        start = None
        if is_first and undisturbed and end is not None and case.started >= end:
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
    total = case.finished - case.started
    if total < 0:
        return None
    if len(case.launches) <= 1:
        return total
    repeat_seconds = min(_neighbour_times(case, ordered), default=None)
    return (
        max(0.0, _isolated_seconds(case, ordered, start))
        if repeat_seconds is None
        else repeat_seconds
    )


def _neighbour_times(case: CaseTimes, ordered: Sequence[CaseTimes]) -> Iterator[float]:
    """Yield estimates of one repeat's seconds from neighbouring cases."""
    neighbours = [other for other in ordered if other.launches[:1] == case.launches[:1]]
    for before, after in pairwise(neighbours):
        if before is case:
            yield after.started - case.started
    last_launch = sorted(
        (other for other in ordered if other.launches[-1:] == case.launches[-1:]),
        key=lambda other: other.finished,
    )
    for before, after in pairwise(last_launch):
        if after is case:
            yield case.finished - before.finished


def _isolated_seconds(case: CaseTimes, ordered: Sequence[CaseTimes], start: float) -> float:
    """Return the seconds of a case without neighbours in its launches.

    The starts of later jobs are assumed to take as long as the start of this job.
    """
    later_starts = [other.started for other in ordered if other.started > case.started]
    if later_starts:
        return min(later_starts) - case.started - start
    earlier_ends = [
        other.finished for other in ordered if case.started < other.finished < case.finished
    ]
    if earlier_ends:
        return case.finished - max(earlier_ends) - start
    launches = len(case.launches)
    return (case.finished - case.started - (launches - 1) * start) / launches


def hash_work(
    benchmark: Any,
    version: Any,
    np: Any,
    params: Mapping[str, Any],
    argv: Sequence[Any] = (),
    case_id: str = "",
) -> str:
    """Return a short hash of the work that determines the times of a case.

    Cases of different work may have the same name, in two suites or in two versions of a suite.
    Their times must not be compared.

    Args:
        benchmark: The benchmark's name.
        version: Its version.
        np: The number of ranks.
        params: The parameters of the case.
        argv: The command line of the run, which has the planted faults.
        case_id: The id of the case; faults of other cases do not count.
    """
    timed_params = {name: param for name, param in params.items() if name not in UNTIMED_PARAMS}
    faults = [
        fault for fault in parse_planted_faults(list(map(str, argv))) if _applies_to(fault, case_id)
    ]
    identity = [benchmark, version, np, timed_params, faults]
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]


def _applies_to(fault: str, case_id: str) -> bool:
    """Whether ``FAULT[@CASE]`` may be planted in a case; CASE is its id or its name."""
    _, separator, target = fault.partition("@")
    return not separator or target in (case_id, case_id.partition("[")[0])


def parse_planted_faults(argv: Sequence[str]) -> list[str]:
    """Return the ``FAULT`` or ``FAULT@CASE`` of each ``--inject`` of a run."""
    split = [following for arg, following in pairwise(argv) if arg == _INJECT]
    joined = [arg for arg in argv if arg.startswith(f"{_INJECT}=")]
    return [*split, *(arg.removeprefix(f"{_INJECT}=") for arg in joined)]
