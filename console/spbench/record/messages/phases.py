"""Descriptions of a run's phase: its start, and the progress of a running case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from spbench.record.case_state import CaseState
from spbench.record.number_formatting import format_whole_seconds
from spbench.record.run_parts import JobState, RankState
from spbench.record.state import RunState
from spbench_core.events.statuses import Activity, JobStatus, RankPhase
from spbench_core.number_text import format_quantity

_MAX_HIDDEN_SECONDS = 0.5
"""A remaining time of a phase up to this one would be shown as 0 s, so it is left out."""


def describe_start(state: RunState, now: float) -> str:
    """Return the step for which a run waits before its ranks measure.

    Empty if a rank measures or reports progress, or if the run waits for no step.
    """
    if state.run is None:
        return "waiting for the run's first events"
    if state.run.finished is not None:
        return ""
    if not state.jobs:
        return f"asking hosts what they have (ssh), {_format_seconds_since(state.run.started, now)}"
    running = [job for job in state.jobs.values() if job.status is not JobStatus.ENDED]
    if not running:
        last_job = state.jobs[max(state.jobs)]
        elapsed = _format_seconds_since(last_job.finished or now, now)
        return f"job {last_job.number} has ended, the next begins: {elapsed}"
    # Jobs on separate hosts may run at once.
    ranks_of_jobs = [_list_ranks(state, job) for job in running]
    # A set, since thousands of ranks are in few phases.
    phases = {rank.phase for ranks in ranks_of_jobs for rank in ranks}
    if not all(phase.is_before_work for phase in phases):
        return ""
    newest = max(running, key=lambda job: job.number)
    return _describe_launch(newest, _list_ranks(state, newest), now)


def _list_ranks(state: RunState, job: JobState) -> list[RankState]:
    """Return the ranks of a running job that have connected."""
    return [state.ranks[number] for number in job.rank_range if number in state.ranks]


def _describe_launch(job: JobState, ranks: Collection[RankState], now: float) -> str:
    phases = Counter(rank.phase for rank in ranks)
    num_ranks = sum(phases.values())
    all_ranks = format_quantity(job.np, "rank")
    elapsed = _format_seconds_since(job.started, now)
    if num_ranks == 0:
        return f"{job.launcher} launches {all_ranks}, {elapsed}"
    if phases[RankPhase.STARTING] or num_ranks < job.np:
        if ready := num_ranks - phases[RankPhase.STARTING]:
            return f"MPI and torch start: {ready} of {all_ranks} are ready, {elapsed}"
        return f"MPI and torch start: {num_ranks} of {all_ranks} are there, {elapsed}"
    if phases[RankPhase.READY] == job.np:
        all_ready = "the rank is ready" if job.np == 1 else f"all {job.np} ranks are ready"
        return f"{all_ready}, {elapsed}"
    if phases[RankPhase.SETUP] == num_ranks:
        first = min(rank.phase_since for rank in ranks)
        return f"set-up and warm-up, {_format_seconds_since(first, now)}"
    return ""


def _format_seconds_since(moment: float, now: float) -> str:
    return format_whole_seconds(max(0.0, now - moment))


def describe_phase(state: RunState, now: float) -> str:
    """Return the phase of the most advanced rank, ``check 40 %, phase ends in 12 s``.

    The time is that of the phase, since other phases may follow. It is left out if it is about 0 s.
    For programs, which cannot report their progress, it is ``running, 40 lines, 12 s``. Empty if no
    rank reports a phase.
    """
    rank = _find_counting_rank(state)
    if rank is None:
        return _describe_uncounted(state, now)
    percent = _compute_percent(rank)
    seconds = _estimate_seconds(rank, now)
    phase = f"{rank.shown_phase} {percent} %"
    if seconds is None or seconds <= _MAX_HIDDEN_SECONDS:
        return phase
    return f"{phase}, phase ends in {format_whole_seconds(seconds)}"


def compute_phase_percent(state: RunState, case: str) -> int | None:
    """Return the share of `describe_phase` for a case, in percent; None if unknown."""
    rank = _find_counting_rank(state, case)
    return None if rank is None else _compute_percent(rank)


def find_phase_name(state: RunState, case: str) -> str:
    """Return the name of the phase of `describe_phase` for a case; empty if unknown."""
    rank = _find_counting_rank(state, case)
    return "" if rank is None else rank.shown_phase


def _compute_percent(rank: RankState) -> int:
    return 100 * rank.done // rank.total


def describe_finished_launches(case: CaseState) -> str:
    """Return ``1 of 3 launches``; empty unless the case has more than one repeat."""
    if case.repeats < 2:
        return ""
    return f"{case.num_ended_repeats} of {case.repeats} launches"


def estimate_phase_seconds(state: RunState, now: float) -> float | None:
    """Return the remaining seconds of the phase at its speed so far; None if unknown."""
    rank = _find_counting_rank(state)
    return None if rank is None else _estimate_seconds(rank, now)


def _find_counting_rank(state: RunState, case: str | None = None) -> RankState | None:
    """Return the rank with the newest phase among those that report progress.

    Args:
        state: The run.
        case: The case of the rank; None: any case.
    """
    counting = [
        rank
        for rank in _list_working(state)
        if rank.done < rank.total and case in (None, rank.case)
    ]
    # Ranks that wait for others report no progress, above all those of an earlier phase.
    return max(counting, key=lambda rank: rank.phase_since, default=None)


def _describe_uncounted(state: RunState, now: float) -> str:
    working = _list_working(state)
    running = _find_most_advanced(working, Activity.RUNNING)
    if running is not None:
        lines = format_quantity(running.done, "line")
        return f"{Activity.RUNNING}, {lines}, {_format_seconds_since(running.phase_since, now)}"
    waiting = _find_most_advanced(working, Activity.WAITING)
    if waiting is not None:
        since = waiting.phase_since
        return f"{Activity.WAITING} for another rank, {_format_seconds_since(since, now)}"
    return ""


def _list_working(state: RunState) -> list[RankState]:
    """Return the ranks that work in a case; none after the end of the run."""
    if state.run is not None and state.run.finished is not None:
        return []
    return [rank for rank in state.ranks.values() if rank.phase is RankPhase.WORKING]


def _find_most_advanced(ranks: Collection[RankState], activity: Activity) -> RankState | None:
    """Return the rank with the most steps done among those with an activity."""
    active = [rank for rank in ranks if rank.activity == activity]
    return max(active, key=lambda rank: rank.done, default=None)


def _estimate_seconds(rank: RankState, now: float) -> float | None:
    if not rank.done or not rank.phase_since:
        return None
    seconds_per_step = (now - rank.phase_since) / rank.done
    return max(0.0, seconds_per_step * (rank.total - rank.done))
