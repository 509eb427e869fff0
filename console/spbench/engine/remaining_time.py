"""The remaining time of a run, estimated while it runs."""

from __future__ import annotations

from spbench.engine.estimate import RunEstimate, format_estimate
from spbench.record.state import RunState

_LEAST_FACTOR, _MOST_FACTOR = 0.1, 10.0
"""Bounds of the correction by what a run has measured so far."""
_PRIOR = 0.1
"""The share of the estimate that the first measured durations are weighed against."""
_OVERRUN = 0.1
"""The remaining time of a launch that takes longer than estimated, as a share of its time."""


def remaining(state: RunState, estimate: RunEstimate, now: float) -> float | None:
    """Return the estimated seconds until the end of a run; None if they are unknown.

    What the run has measured so far corrects the estimate of the rest.

    Args:
        state: The run.
        estimate: The estimate of its plan.
        now: The time of the console's clock, in seconds since the epoch.
    """
    run = state.run
    if run is None or run.finished is not None or not estimate.cases:
        return None
    begin = run.resumed[-1]["time"] if run.resumed else run.started
    done = left = launch = 0.0
    for name, case in estimate.cases.items():
        if _took_no_time(state, name, begin):
            continue
        share = _share_done(state, name)
        if case.seconds is None:
            if share < 1:
                return None
            continue
        done += share * case.seconds
        left += (1 - share) * case.seconds
        if share < 1 and (launch == 0.0 or _is_running(state, name)):
            launch = min((1 - share) * case.seconds, case.seconds / _repeats(state, name))
    elapsed = max(0.0, now - begin)
    since = max(0.0, now - _last_end(state, begin, now))
    prior = _PRIOR * (done + left)
    if prior == 0:
        return 0.0
    factor = (elapsed - since + prior) / (done + prior)
    factor = min(_MOST_FACTOR, max(_LEAST_FACTOR, factor))
    # A launch that takes longer than estimated does not make the launches after it shorter.
    rest_of_launch = max(factor * launch - since, _OVERRUN * since if left else 0.0)
    return factor * (left - launch) + rest_of_launch


def format_remaining(seconds: float | None) -> str:
    """Return the remaining time of a run for people; nothing if it is unknown."""
    return "" if seconds is None else f"about {format_estimate(seconds)} left"


def _took_no_time(state: RunState, name: str, begin: float) -> bool:
    """Return whether a case ended before the run was resumed, or without having started."""
    case = state.cases.get(name)
    if case is None or case.status in ("waiting", "running"):
        return False
    return case.verdict.finished is None or case.verdict.finished < begin


def _is_running(state: RunState, name: str) -> bool:
    case = state.cases.get(name)
    return case is not None and case.status == "running"


def _repeats(state: RunState, name: str) -> int:
    case = state.cases.get(name)
    return 1 if case is None else max(1, case.repeats)


def _share_done(state: RunState, name: str) -> float:
    case = state.cases.get(name)
    if case is None:
        return 0.0
    if case.status not in ("waiting", "running"):
        return 1.0
    ended = len(case.measured.ended) / max(1, case.identity.np * case.repeats)
    return min(1.0, ended)


def _last_end(state: RunState, begin: float, now: float) -> float:
    """Return when the last launch of a case ended, or the run began: since then one has run.

    Ranks have clocks of their own: what they report lies between the other two times.
    """
    ends = [
        end
        for case in state.cases.values()
        for end in (case.verdict.finished, case.measured.last_end)
        if end is not None and begin < end
    ]
    return min(now, max(ends, default=begin))
