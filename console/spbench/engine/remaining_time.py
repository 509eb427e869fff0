"""The remaining time of a run, estimated while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from spbench.engine.estimate import RunEstimate, format_estimate
from spbench.record.phase_words import seconds_of_phase
from spbench.record.state import RunState
from spbench_core.events.statuses import CaseStatus

_LEAST_FACTOR = 0.1
_MOST_FACTOR = 10.0
"""Bounds of the correction by what a run has measured so far."""
_PRIOR = 0.1
"""The share of the estimate that the first measured durations are weighed against."""
_OVERRUN = 0.1
"""The remaining time of a launch that takes longer than estimated, as a share of its time."""


def remaining(state: RunState, estimate: RunEstimate, now: float) -> float | None:
    """Return the estimated seconds until the end of a run; None if they are unknown.

    What the run has measured so far corrects the estimate of the rest, which is at least the
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
    begun = _begun_launches(state, begin)
    starting = _starting_cases(state)
    done = left = launch = start = 0.0
    for name, case in estimate.cases.items():
        if _took_no_time(state, name, begin):
            continue
        share = _share_done(state, name)
        if case.seconds is None:
            if share < 1:
                return None
            continue
        # The start of a launch is over before its first case has ended, and counts as done.
        started = max(share, min(1.0, begun[name] / case.launches))
        measuring = max(0.0, case.seconds - case.start)
        rest = (1 - share) * measuring + (1 - started) * case.start
        done += case.seconds - rest
        left += rest
        if share < 1 and (launch == 0.0 or _is_running(state, name)):
            launch = min(rest, measuring / _repeats(state, name))
        if name in starting:
            start += case.start / case.launches
    launch += start
    elapsed = max(0.0, now - begin)
    since = max(0.0, now - _last_end(state, begin, now))
    prior = _PRIOR * (done + left)
    if prior == 0:
        return 0.0
    factor = (elapsed - since + prior) / (done + prior)
    factor = min(_MOST_FACTOR, max(_LEAST_FACTOR, factor))
    # A launch that takes longer than estimated does not make the launches after it shorter.
    rest_of_launch = max(factor * launch - since, _OVERRUN * since if left else 0.0)
    return max(factor * (left - launch) + rest_of_launch, seconds_of_phase(state, now) or 0.0)


def format_remaining(seconds: float | None) -> str:
    """Return the remaining time of a run for people; nothing if it is unknown."""
    return "" if seconds is None else f"about {format_estimate(seconds)} left"


def _took_no_time(state: RunState, name: str, begin: float) -> bool:
    """Return whether a case ended before the run was resumed, or without having started."""
    case = state.cases.get(name)
    if case is None or not case.status.is_final:
        return False
    return case.verdict.finished is None or case.verdict.finished < begin


def _is_running(state: RunState, name: str) -> bool:
    case = state.cases.get(name)
    return case is not None and case.status == CaseStatus.RUNNING


def _begun_launches(state: RunState, begin: float) -> Counter[str]:
    """Count the launches of each case that have begun their first case."""
    jobs = (
        job for job in state.jobs.values() if job.started >= begin and job.first_case is not None
    )
    return Counter(name for job in jobs for name in job.cases)


def _starting_cases(state: RunState) -> Collection[str]:
    """Return the cases of the launch that has not begun the first of them."""
    jobs = [job for job in state.jobs.values() if job.finished is None and job.first_case is None]
    return frozenset(jobs[-1].cases) if jobs else frozenset()


def _repeats(state: RunState, name: str) -> int:
    case = state.cases.get(name)
    return 1 if case is None else max(1, case.repeats)


def _share_done(state: RunState, name: str) -> float:
    case = state.cases.get(name)
    if case is None:
        return 0.0
    if case.status.is_final:
        return 1.0
    ended = len(case.measured.ended) / max(1, case.identity.np * case.repeats)
    return min(1.0, ended)


def _last_end(state: RunState, begin: float, now: float) -> float:
    """Return when a case or the start of a launch ended last, or the run began.

    Ranks have clocks of their own: what they report lies between the other two times.
    """
    ends = [
        *(job.first_case for job in state.jobs.values()),
        *(case.verdict.finished for case in state.cases.values()),
        *(case.measured.last_end for case in state.cases.values()),
    ]
    return min(now, max((end for end in ends if end is not None and begin < end), default=begin))
