"""Verdicts of cases, and further launches of cases that repeat.

A case is judged once its ranks have ended, and those of the cases to which it refers. A case with
``until`` repeats until its median is precise enough, or its time is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from spbench.engine.faults.fault import Fault
from spbench.engine.recorder import Recorder
from spbench.errors import SpbenchError
from spbench.launch.jobs import Job
from spbench.record.case_figures import find_ready
from spbench.record.case_state import CaseState
from spbench.record.judge import describe_failed_checks, judge
from spbench.record.messages.cases import relative_width
from spbench.record.state import RunState
from spbench.record.stragglers import Straggler, find_stragglers
from spbench.suites.case import MAX_REPEATS
from spbench_core.events.statuses import CaseStatus


def record_verdicts(recorder: Recorder, case_id: str | None = None) -> None:
    """Judge a case if it has ended, and all cases that have waited for others.

    Raises:
        FailedRunError: A verdict cannot be recorded.
    """
    cases = recorder.state.cases
    referring = recorder.state.referring
    ended = [case_id] if case_id is not None and case_id not in referring else []
    for case in [*find_ready(cases, [*ended, *referring])]:
        stragglers = find_stragglers(case)
        verdict = judge(case, cases, stragglers)
        recorder.record(
            "case_judged",
            case=case.id,
            status=verdict.status,
            reason=verdict.reason,
            expectations=verdict.expectations,
            **_straggler_fields(stragglers),
        )


def _straggler_fields(stragglers: Iterable[Straggler]) -> dict[str, Any]:
    """Return the fields of an event for stragglers; an empty dict without stragglers."""
    rows = [asdict(straggler) for straggler in stragglers]
    return {"stragglers": rows} if rows else {}


def judge_case(
    recorder: Recorder,
    case_id: str,
    fault: Fault,
    status: CaseStatus | None = None,
    *,
    job: int | None = None,
) -> None:
    """Record a fault as a case's verdict; ``job`` if several run at once."""
    fields: dict[str, Any] = {
        "case": case_id,
        "status": status or fault.status,
        "reason": fault.message,
        "traceback": fault.traceback,
        "expectations": [],
        **_straggler_fields(find_stragglers(recorder.state.cases[case_id])),
    } | ({} if job is None else {"job": job})
    try:
        recorder.record("case_judged", **fields)
    except SpbenchError:
        # The log cannot be written. The recorder now continues without it.
        recorder.record("case_judged", **fields)
    with suppress(SpbenchError):
        record_verdicts(recorder)


def plan_further_jobs(jobs: Iterable[Job], recorder: Recorder) -> tuple[Job, ...]:
    """Return one more launch of each case that must repeat; end other repeats.

    Raises:
        FailedRunError: The end of repeats cannot be recorded.
    """
    state = recorder.state
    for case in [*_list_repeating(state)]:
        width = relative_width(case)
        reason = _find_end_of_repeats(case, state, width)
        if reason is not None:
            recorder.record(
                "repeats_end", case=case.id, repeats=case.repeats, why=reason, width=width
            )
            record_verdicts(recorder, case.id)
    next_repeats = {case.id: case.repeats for case in _list_repeating(state)}
    return tuple(_make_jobs(jobs, next_repeats))


def _list_repeating(state: RunState) -> Iterator[CaseState]:
    """Yield the cases with ``until`` that have ended all repeats so far."""
    for case in state.cases.values():
        if (
            case.identity.until
            and case.status == CaseStatus.RUNNING
            and case.all_ended
            and not case.complete
        ):
            yield case


def _find_end_of_repeats(case: CaseState, state: RunState, width: float | None) -> str | None:
    """Return why a case needs no further repeat; None if it needs one."""
    until = case.identity.until or {}
    if describe_failed_checks(case):
        return "check"
    if width is not None and width <= until["interval"]:
        return "interval"
    if _count_seconds(case, state) >= until["max_time"]:
        return "max_time"
    return "repeats" if case.repeats >= MAX_REPEATS else None


def _count_seconds(case: CaseState, state: RunState) -> float:
    """Return the seconds of a case's launches, each shared equally by its cases."""
    jobs = [state.jobs[number] for number in set(case.measured.jobs.values())]
    return sum(
        (job.finished - job.started) / len(job.cases) for job in jobs if job.finished is not None
    )


def _make_jobs(jobs: Iterable[Job], next_repeats: dict[str, int]) -> Iterator[Job]:
    for job in jobs:
        repeats = {next_repeats[case.id] for case in job.cases if case.id in next_repeats}
        for repeat in sorted(repeats):
            cases = tuple(case for case in job.cases if next_repeats.get(case.id) == repeat)
            yield replace(job, cases=cases, repeat=repeat)
