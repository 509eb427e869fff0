"""The remaining time of a run, estimated while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from spbench.engine.run_estimate import RunEstimate, format_estimate
from spbench.record.messages.phases import estimate_phase_seconds
from spbench.record.state import RunState
from spbench_core.events.statuses import CaseStatus

_MIN_FACTOR = 0.1
_MAX_FACTOR = 10.0
"""Bounds of the correction by the measured durations."""
_PRIOR = 0.1
"""The weight of the estimate against the first measured durations: a share of the estimate."""
_OVERRUN = 0.1
"""The remaining time of a launch that takes longer than estimated: a share of its time."""


def estimate_remaining(state: RunState, estimate: RunEstimate, now: float) -> float | None:
    """Return the estimated seconds until the end of a run; None if they are unknown.

    The measured durations correct the estimate of the remaining cases. The result is at least the
    remaining time of the phase.

    Args:
        state: The run.
        estimate: The estimate of its plan.
        now: The time of the console's clock, in seconds since the epoch.
    """
    run = state.run
    if run is None or run.finished is not None or not estimate.cases:
        return None
    begin = run.resumed[-1]["time"] if run.resumed else run.started
    num_begun = _count_begun_launches(state, begin)
    starting = _find_starting_cases(state)

    done = 0.0
    remaining = 0.0
    current_launch = 0.0
    current_start = 0.0
    for name, case in estimate.cases.items():
        if _took_no_time(state, name, begin):
            continue
        share = _compute_share_done(state, name)
        if case.seconds is None:
            if share < 1:
                return None
            continue
        # The start of a launch is over before its first case has ended, and counts as done.
        started = max(share, min(1.0, num_begun[name] / case.launches))
        measuring = max(0.0, case.seconds - case.start)
        case_remaining = (1 - share) * measuring + (1 - started) * case.start
        done += case.seconds - case_remaining
        remaining += case_remaining
        if share < 1 and (current_launch == 0.0 or _is_running(state, name)):
            current_launch = min(case_remaining, measuring / _count_repeats(state, name))
        if name in starting:
            current_start += case.start / case.launches
    current_launch += current_start

    elapsed = max(0.0, now - begin)
    since_end = max(0.0, now - _find_last_end(state, begin, now))
    prior = _PRIOR * (done + remaining)
    if prior == 0:
        return 0.0
    factor = (elapsed - since_end + prior) / (done + prior)
    factor = min(_MAX_FACTOR, max(_MIN_FACTOR, factor))
    # A launch that takes longer than estimated does not make the launches after it shorter.
    overrun = _OVERRUN * since_end if remaining else 0.0
    launch_remaining = max(factor * current_launch - since_end, overrun)
    total = factor * (remaining - current_launch) + launch_remaining
    return max(total, estimate_phase_seconds(state, now) or 0.0)


def format_remaining(seconds: float | None) -> str:
    """Return the remaining time of a run for people; empty if it is unknown."""
    return "" if seconds is None else f"about {format_estimate(seconds)} left"


def _took_no_time(state: RunState, name: str, begin: float) -> bool:
    """Whether a case ended before the run was resumed, or without having started."""
    case = state.cases.get(name)
    if case is None or not case.status.is_final:
        return False
    return case.verdict.finished is None or case.verdict.finished < begin


def _is_running(state: RunState, name: str) -> bool:
    case = state.cases.get(name)
    return case is not None and case.status == CaseStatus.RUNNING


def _count_begun_launches(state: RunState, begin: float) -> Counter[str]:
    """Count the launches of each case that have begun their first case."""
    jobs = (
        job for job in state.jobs.values() if job.started >= begin and job.first_case is not None
    )
    return Counter(name for job in jobs for name in job.cases)


def _find_starting_cases(state: RunState) -> Collection[str]:
    """Return the cases of a launch that has not begun its first case."""
    jobs = [job for job in state.jobs.values() if job.finished is None and job.first_case is None]
    return frozenset(jobs[-1].cases) if jobs else frozenset()


def _count_repeats(state: RunState, name: str) -> int:
    case = state.cases.get(name)
    return 1 if case is None else max(1, case.repeats)


def _compute_share_done(state: RunState, name: str) -> float:
    case = state.cases.get(name)
    if case is None:
        return 0.0
    if case.status.is_final:
        return 1.0
    ended = len(case.measured.ended) / max(1, case.identity.np * case.repeats)
    return min(1.0, ended)


def _find_last_end(state: RunState, begin: float, now: float) -> float:
    """Return the time at which a case or the start of a launch last ended.

    It is ``begin``, the begin of the run, if none has ended since.
    The clocks of ranks may differ, so the result is clamped to the time from ``begin`` to ``now``.
    """
    ends = [
        *(job.first_case for job in state.jobs.values()),
        *(case.verdict.finished for case in state.cases.values()),
        *(case.measured.last_end for case in state.cases.values()),
    ]
    return min(now, max((end for end in ends if end is not None and begin < end), default=begin))
