"""The remaining time of a run, estimated while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from spbench.engine.run_estimate import RunEstimate, format_estimate
from spbench.record.messages.phases import estimate_phase_seconds
from spbench.record.state import RunState
from spbench_core.events.statuses import CaseStatus

_MIN_CORRECTION = 0.1
_MAX_CORRECTION = 10.0
"""Bounds of the correction by the measured durations."""
_PRIOR_SHARE = 0.1
"""The weight of the estimate against the first measured durations: a share of the estimate."""
_OVERRUN_SHARE = 0.1
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
    begin_time = run.resumed[-1]["time"] if run.resumed else run.started
    launches_begun = _count_begun_launches(state, begin_time)
    starting_cases = _find_starting_cases(state)

    done_seconds = 0.0
    remaining_seconds = 0.0
    current_launch_seconds = 0.0
    current_start_seconds = 0.0
    for case_id, case in estimate.cases.items():
        if _has_no_duration(state, case_id, begin_time):
            continue
        share_done = _compute_share_done(state, case_id)
        if case.seconds is None:
            if share_done < 1:
                return None
            continue
        # The start of a launch is over before its first case has ended, and counts as done.
        share_started = max(share_done, min(1.0, launches_begun[case_id] / case.num_launches))
        measuring_seconds = max(0.0, case.seconds - case.start_seconds)
        case_seconds_left = (1 - share_done) * measuring_seconds + (
            1 - share_started
        ) * case.start_seconds
        done_seconds += case.seconds - case_seconds_left
        remaining_seconds += case_seconds_left
        if share_done < 1 and (current_launch_seconds == 0.0 or _is_running(state, case_id)):
            current_launch_seconds = min(
                case_seconds_left, measuring_seconds / _count_repeats(state, case_id)
            )
        if case_id in starting_cases:
            current_start_seconds += case.start_seconds / case.num_launches
    current_launch_seconds += current_start_seconds

    elapsed_seconds = max(0.0, now - begin_time)
    seconds_since_end = max(0.0, now - _find_last_end(state, begin_time, now))
    prior_seconds = _PRIOR_SHARE * (done_seconds + remaining_seconds)
    if prior_seconds == 0:
        return 0.0
    correction = (elapsed_seconds - seconds_since_end + prior_seconds) / (
        done_seconds + prior_seconds
    )
    correction = min(_MAX_CORRECTION, max(_MIN_CORRECTION, correction))
    # A launch that takes longer than estimated does not make the launches after it shorter.
    overrun_seconds = _OVERRUN_SHARE * seconds_since_end if remaining_seconds else 0.0
    launch_seconds_left = max(
        correction * current_launch_seconds - seconds_since_end, overrun_seconds
    )
    total_seconds = correction * (remaining_seconds - current_launch_seconds) + launch_seconds_left
    return max(total_seconds, estimate_phase_seconds(state, now) or 0.0)


def format_remaining(seconds: float | None) -> str:
    """Return the remaining time of a run for people; empty if it is unknown."""
    return "" if seconds is None else f"about {format_estimate(seconds)} left"


def _has_no_duration(state: RunState, case_id: str, begin: float) -> bool:
    """Whether a case ended before the run was resumed, or without having started."""
    case = state.cases.get(case_id)
    if case is None or not case.status.is_final:
        return False
    return case.execution.finished is None or case.execution.finished < begin


def _is_running(state: RunState, case_id: str) -> bool:
    case = state.cases.get(case_id)
    return case is not None and case.status == CaseStatus.RUNNING


def _count_begun_launches(state: RunState, begin: float) -> Counter[str]:
    """Count the launches of each case that have begun their first case."""
    jobs = (
        job for job in state.jobs.values() if job.started >= begin and job.first_case is not None
    )
    return Counter(case_id for job in jobs for case_id in job.cases)


def _find_starting_cases(state: RunState) -> Collection[str]:
    """Return the cases of a launch that has not begun its first case."""
    jobs = [job for job in state.jobs.values() if job.finished is None and job.first_case is None]
    return frozenset(jobs[-1].cases) if jobs else frozenset()


def _count_repeats(state: RunState, case_id: str) -> int:
    case = state.cases.get(case_id)
    return 1 if case is None else max(1, case.repeats)


def _compute_share_done(state: RunState, case_id: str) -> float:
    case = state.cases.get(case_id)
    if case is None:
        return 0.0
    if case.status.is_final:
        return 1.0
    share_ended = len(case.measured.ended) / max(1, case.identity.np * case.repeats)
    return min(1.0, share_ended)


def _find_last_end(state: RunState, begin: float, now: float) -> float:
    """Return the time at which a case or the start of a launch last ended.

    If there has been no such end since ``begin``, the result is ``begin``.
    The clocks of ranks may differ, so the result is clamped to the time from ``begin`` to ``now``.
    """
    ends = [
        *(job.first_case for job in state.jobs.values()),
        *(case.execution.finished for case in state.cases.values()),
        *(case.measured.last_end for case in state.cases.values()),
    ]
    return min(now, max((end for end in ends if end is not None and begin < end), default=begin))
