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
        job_numbers: The jobs that ran its repeats, in order.
        repeats: The number of repeats in each of these jobs.
    """

    id: str
    status: CaseStatus
    started: float
    finished: float
    job_numbers: tuple[int, ...]
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class CaseDuration:
    """The duration of a case.

    Attributes:
        seconds: The duration of one repeat, without the start of its job.
        num_launches: The number of launches of the case.
        start_seconds: Seconds from the launch of its job until it began; None if it was not the
            first case.
    """

    seconds: float
    num_launches: int
    start_seconds: float | None = None


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
    start_seconds_by_job: dict[tuple[int, ...], float] = {}
    previous: CaseTimes | None = None
    previous_end = run_started
    for case in ordered:
        first_job = case.job_numbers[:1]
        start_seconds = None
        if previous_end is not None and _follows_end(case, previous, previous_end):
            start_seconds = case.started - previous_end
            start_seconds_by_job[first_job] = start_seconds
        launch_seconds = _estimate_launch_seconds(
            case, ordered, start_seconds_by_job.get(first_job, 0.0)
        )
        if launch_seconds is not None and case.status.is_measured:
            repeat_seconds = launch_seconds / case.repeats
            num_launches = max(1, len(case.job_numbers))
            durations[case.id] = CaseDuration(repeat_seconds, num_launches, start_seconds)
        previous = case
        previous_end = case.finished if launch_seconds is None else case.started + launch_seconds
    return durations


def _follows_end(case: CaseTimes, previous: CaseTimes | None, previous_end: float) -> bool:
    """Whether only the start of its job is between a case and the previous one's end."""
    if case.started < previous_end:
        return False
    if previous is None:
        return True
    is_first_in_job = previous.job_numbers[:1] != case.job_numbers[:1]
    return is_first_in_job and previous.status.is_measured


def _estimate_launch_seconds(
    case: CaseTimes, ordered: Sequence[CaseTimes], start_seconds: float
) -> float | None:
    """Return the seconds of a case in one launch; None if its times are wrong."""
    total_seconds = case.finished - case.started
    if total_seconds < 0:
        return None
    if len(case.job_numbers) <= 1:
        return total_seconds
    shortest = min(_estimate_from_neighbours(case, ordered), default=None)
    if shortest is not None:
        return shortest
    return max(0.0, _estimate_without_neighbours(case, ordered, start_seconds))


def _estimate_from_neighbours(case: CaseTimes, ordered: Sequence[CaseTimes]) -> Iterator[float]:
    """Yield estimates of one repeat's seconds from neighbouring cases."""
    in_first_launch = [other for other in ordered if other.job_numbers[:1] == case.job_numbers[:1]]
    for before, after in pairwise(in_first_launch):
        if before is case:
            yield after.started - case.started
    in_last_launch = sorted(
        (other for other in ordered if other.job_numbers[-1:] == case.job_numbers[-1:]),
        key=lambda other: other.finished,
    )
    for before, after in pairwise(in_last_launch):
        if after is case:
            yield case.finished - before.finished


def _estimate_without_neighbours(
    case: CaseTimes, ordered: Sequence[CaseTimes], start_seconds: float
) -> float:
    """Return the seconds of a case without neighbours in its launches.

    The starts of later jobs are assumed to take as long as the start of this job.
    """
    later_starts = [other.started for other in ordered if other.started > case.started]
    if later_starts:
        return min(later_starts) - case.started - start_seconds
    earlier_ends = [
        other.finished for other in ordered if case.started < other.finished < case.finished
    ]
    if earlier_ends:
        return case.finished - max(earlier_ends) - start_seconds
    num_launches = len(case.job_numbers)
    return (case.finished - case.started - (num_launches - 1) * start_seconds) / num_launches


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
        fault
        for fault in parse_planted_faults(list(map(str, argv)))
        if applies_to_case(fault, case_id)
    ]
    identity = [benchmark, version, np, timed_params, faults]
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]


def applies_to_case(fault: str, case_id: str) -> bool:
    """Whether ``FAULT[@CASE]`` may be planted in a case; CASE is its id or its name."""
    _, separator, target = fault.partition("@")
    return not separator or target in (case_id, case_id.partition("[")[0])


def parse_planted_faults(argv: Sequence[str]) -> list[str]:
    """Return the ``FAULT`` or ``FAULT@CASE`` of each ``--inject`` of a run."""
    split = [following for arg, following in pairwise(argv) if arg == _INJECT]
    joined = [arg for arg in argv if arg.startswith(f"{_INJECT}=")]
    return [*split, *(arg.removeprefix(f"{_INJECT}=") for arg in joined)]
