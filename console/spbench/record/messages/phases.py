"""The phase of a run in words: of its start, and of a running case how long it takes yet."""

from __future__ import annotations

from collections import Counter

from spbench.record.run_parts import JobState, RankState
from spbench.record.state import RunState
from spbench_core.events.statuses import Activity, RankPhase
from spbench_core.quantities import format_quantity


def describe_start(state: RunState, now: float) -> str:
    """Return what a run that goes on waits for before its ranks measure, and for how long.

    Empty once a rank measures, counts what it does, or nothing is waited for.
    """
    if state.run is None:
        return "waiting for the run's first events"
    if state.run.finished is not None:
        return ""
    job = state.jobs[max(state.jobs)] if state.jobs else None
    if job is None:
        return f"asking hosts what they have (ssh), {_since(state.run.started, now)}"
    if job.finished is not None:
        return f"job {job.number} has ended, the next begins: {_since(job.finished, now)}"
    return _launch_words(state, job, now)


def _launch_words(state: RunState, job: JobState, now: float) -> str:
    if any(not rank.phase.is_before_work for rank in state.ranks.values()):
        return ""
    phases = Counter(rank.phase for rank in state.ranks.values())
    known = sum(phases.values())
    of = f"of {format_quantity(job.np, 'rank')}"
    if known == 0:
        return (
            f"{job.launcher} launches {format_quantity(job.np, 'rank')}, {_since(job.started, now)}"
        )
    if phases[RankPhase.STARTING] or known < job.np:
        if ready := known - phases[RankPhase.STARTING]:
            return f"MPI and torch start: {ready} {of} are ready, {_since(job.started, now)}"
        return f"MPI and torch start: {known} {of} are there, {_since(job.started, now)}"
    if phases[RankPhase.READY] == job.np:
        all_ready = "the rank is ready" if job.np == 1 else f"all {job.np} ranks are ready"
        return f"{all_ready}, {_since(job.started, now)}"
    if phases[RankPhase.SETUP] == known:
        first = min(rank.last_heard for rank in state.ranks.values())
        return f"set-up and warm-up, {_since(first, now)}"
    return ""


def _since(moment: float, now: float) -> str:
    return f"{max(0.0, now - moment):.0f} s"


def describe_phase(state: RunState, now: float) -> str:
    """Return the phase of the rank that gets on, ``check 40 %, 12 s left``.

    Of programs, which cannot tell how far they are, ``running, 40 lines, 12 s``; empty where no
    rank tells.
    """
    rank = _counting_rank(state)
    if rank is None:
        return _endless_words(state, now)
    percent = 100 * rank.done // rank.total
    left = _seconds_left(rank, now)
    return f"{rank.shown_phase} {percent} %" + ("" if left is None else f", {left:.0f} s left")


def estimate_phase_seconds(state: RunState, now: float) -> float | None:
    """Return the remaining seconds of the phase at its speed so far; None if unknown."""
    rank = _counting_rank(state)
    return None if rank is None else _seconds_left(rank, now)


def _counting_rank(state: RunState) -> RankState | None:
    """Return the rank with the newest phase among those that report progress."""
    counting = [rank for rank in state.ranks.values() if rank.total and rank.done < rank.total]
    # Ranks that wait for others tell nothing new, and those of an earlier phase least of all.
    return max(counting, key=lambda one: one.phase_since, default=None)


def _endless_words(state: RunState, now: float) -> str:
    of = {rank.shown_phase: rank for rank in sorted(state.ranks.values(), key=lambda one: one.done)}
    if Activity.RUNNING in of:
        rank = of[Activity.RUNNING]
        lines = format_quantity(rank.done, "line")
        return f"{Activity.RUNNING}, {lines}, {_since(rank.phase_since, now)}"
    if Activity.WAITING in of:
        since = of[Activity.WAITING].phase_since
        return f"{Activity.WAITING} for another rank, {_since(since, now)}"
    return ""


def _seconds_left(rank: RankState, now: float) -> float | None:
    if not rank.done or not rank.phase_since:
        return None
    each = (now - rank.phase_since) / rank.done
    return max(0.0, each * (rank.total - rank.done))
