"""Further launches of cases that repeat until their median is known well, or their time is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from spbench.engine.recorder import Recorder
from spbench.engine.verdicts import record_verdicts
from spbench.launch.jobs import Job
from spbench.record.case_state import CaseState
from spbench.record.judge import describe_failed_checks
from spbench.record.repeats import relative_width
from spbench.record.state import RunState
from spbench.suites.case import MAX_REPEATS
from spbench_core.events.statuses import CaseStatus


def plan_further_jobs(jobs: Iterable[Job], recorder: Recorder) -> tuple[Job, ...]:
    """Return a launch more of each case that has to repeat; end the repeats of those that need not.

    Raises:
        FailedRunError: That cannot be recorded.
    """
    state = recorder.state
    for case in [*_repeating(state)]:
        spread = relative_width(case)
        why = _enough(case, state, spread)
        if why is not None:
            recorder.record(
                "repeats_end", case=case.id, repeats=case.repeats, why=why, width=spread
            )
            record_verdicts(recorder, case.id)
    again = {case.id: case.repeats for case in _repeating(state)}
    return tuple(_launches(jobs, again))


def _repeating(state: RunState) -> Iterator[CaseState]:
    """Yield the cases whose repeats so far are done, and may not be enough."""
    for case in state.cases.values():
        if (
            case.identity.until
            and case.status == CaseStatus.RUNNING
            and case.all_ended
            and not case.complete
        ):
            yield case


def _enough(case: CaseState, state: RunState, spread: float | None) -> str | None:
    """Return why a case needs no further repeat; None: it does."""
    asked = case.identity.until or {}
    if describe_failed_checks(case):
        return "check"
    if spread is not None and spread <= asked["interval"]:
        return "interval"
    if _seconds(case, state) >= asked["max_time"]:
        return "max_time"
    return "repeats" if case.repeats >= MAX_REPEATS else None


def _seconds(case: CaseState, state: RunState) -> float:
    """Return the seconds of a case's launches, of each its equal part."""
    jobs = [state.jobs[number] for number in set(case.measured.jobs.values())]
    return sum(
        (job.finished - job.started) / len(job.cases) for job in jobs if job.finished is not None
    )


def _launches(jobs: Iterable[Job], again: dict[str, int]) -> Iterator[Job]:
    for job in jobs:
        for repeat in sorted({again[case.id] for case in job.cases if case.id in again}):
            cases = tuple(case for case in job.cases if again.get(case.id) == repeat)
            yield replace(job, cases=cases, repeat=repeat)
