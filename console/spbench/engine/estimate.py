"""Estimates of the duration of a run before it starts.

A case that this home has run on the same hosts takes as long as it took there. The duration of any
other case follows from its work and the measured speed of a core.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from spbench.engine.plan import Request, RunPlan, runs_locally
from spbench.engine.resume import plan_recorded
from spbench.engine.run_estimate import NO_ESTIMATE, CaseEstimate, EstimateSource, RunEstimate
from spbench.errors import SpbenchError
from spbench.launch.gpu_needs import may_use_gpu
from spbench.launch.hosts.names import is_local
from spbench.launch.jobs import Job
from spbench.launch.load import Load, read_load
from spbench.launch.placement import count_cores
from spbench.record.runs.case_durations import hash_work
from spbench.record.runs.folder import RunFolder
from spbench.suites.case import Case
from spbench_core.catalog.work import Work

if TYPE_CHECKING:
    from spbench.record.runs.index import PastDuration

MAX_RUNS = 5
"""The number of recorded runs of a case that count; the estimate is their median."""

# Fitted on 2026-11-27 to one run each of 115 cases of the shipped suites, on two cores of an AMD
# EPYC: 114 were within a factor of 5 of their duration, 97 within 2. See benchmarks/estimates.py.
# Messages were fitted on 2026-11-28 to halo, links, kvstore, resnet_sp and gems there: 48 of 49
# were within 5.
FLOP_PER_SECOND = 45e9
"""Operations per second of a core, in convolutions and products of fp32."""
BYTES_PER_SECOND = 1.2e9
"""Bytes per second that a core copies, sends or compares."""
MESSAGE_SECONDS = 3e-6
"""Seconds per message, times the square of the ranks per core, because each waits for a core."""
CALL_SECONDS = 30e-6
"""Seconds of a core per call of a torch operator."""
START_SECONDS = 0.2
"""Seconds of a launcher until its ranks run."""
RANK_SECONDS = 0.35
"""Seconds of a core until a rank without torch is ready."""
TORCH_SECONDS = 1.8
"""Seconds of a core until a rank with torch is ready."""


def estimate_plan(plan: RunPlan, home: Path, *, consider_load: bool = True) -> RunEstimate:
    """Return the estimate of a run, from recorded runs of a home and from the work.

    It reads the index of the home. Call it in a thread if a user must not wait. Without
    ``consider_load`` this machine counts as idle, so that the estimate of a case stays the same.
    """
    load = read_load() if consider_load else None
    cases = _list_cases(plan.jobs)
    np_by_case = _count_ranks(plan.jobs)
    work_by_case = {case.id: _hash_case_work(plan, case, np_by_case[case.id]) for case in cases}
    history_by_work = _read_history(plan, home, work_by_case.values())
    repeats_by_case = {
        case.id: _estimate_repeats(case, history_by_work.get(work_by_case[case.id]))
        for case in cases
    }

    seconds_by_case: dict[str, float] = defaultdict(float)
    start_seconds_by_case: dict[str, float] = defaultdict(float)
    launches_by_case: Counter[str] = Counter()
    source_by_case: dict[str, EstimateSource] = {}
    jobs = plan.launch_order
    num_concurrent_by_group = _count_concurrent_by_group(jobs)
    for job in jobs:
        num_concurrent = num_concurrent_by_group[_make_group_key(job)]
        start_seconds = _estimate_start(
            plan, job, load, history_by_work.get(work_by_case[job.cases[0].id])
        )
        # a launch starts once for all its cases, and once for jobs that run at the same time
        start_share = start_seconds / len(job.cases) / num_concurrent
        for case in job.cases:
            past_durations = history_by_work.get(work_by_case[case.id])
            repeat_seconds, source = _estimate_repeat(plan, job, load, case, past_durations)
            source_by_case[case.id] = source
            repeats_in_job = 1 if job.repeat is not None else case.repeat
            # launches that a case needs beyond those of the plan take as long as these
            launch_ratio = repeats_by_case[case.id] / case.repeat
            start_seconds_by_case[case.id] += launch_ratio * start_share
            launches_by_case[case.id] += 1
            if repeat_seconds is not None:
                job_seconds = start_share + repeats_in_job * repeat_seconds / num_concurrent
                seconds_by_case[case.id] += launch_ratio * job_seconds

    estimates = {}
    for case in cases:
        source = source_by_case[case.id]
        seconds = seconds_by_case[case.id] if source is not EstimateSource.UNKNOWN else None
        if seconds is not None and case.until and work_by_case[case.id] not in history_by_work:
            seconds = max(seconds, case.until.max_time)
        estimates[case.id] = CaseEstimate(
            seconds, source, start_seconds_by_case[case.id], launches_by_case[case.id]
        )
    return RunEstimate(estimates)


def estimate_recorded(folder: RunFolder, environ: Mapping[str, str]) -> RunEstimate:
    """Return the estimate of a run of another process; empty if it is damaged.

    It reads the suite of the run and the index of its home. Call it in a thread.
    """
    home = folder.path.parent.parent
    try:
        plan = plan_recorded(Request(Path(), home, environ), folder)
        return estimate_plan(plan, home)
    except SpbenchError:
        return NO_ESTIMATE


def estimate_iteration(plan: RunPlan, case: Case) -> float | None:
    """Return the seconds of an iteration of a case without a fault; None if unknown.

    They are those of the newest run of the same work, else they follow from the work, checks
    included. It reads the index of the home. Call it in a thread.
    """
    np = _count_ranks(plan.jobs)[case.id]
    work_hash = hash_work(case.benchmark, case.entry.version, np, case.params)
    with suppress(ImportError, OSError):
        from spbench.record.runs.index import find_past_launches

        launches = find_past_launches(plan.request.home, case.id, "time_ms")
        medians = [launch.median for launch in launches if launch.work == work_hash]
        if medians:
            return medians[-1] / 1000.0
    iterations = case.params.get("iterations")
    work = None if may_use_gpu(case) else case.estimate_work(np)
    if work is None or not isinstance(iterations, int) or iterations <= 0:
        return None
    warmup = case.params.get("warmup")
    passes = iterations + (warmup if isinstance(warmup, int) else 0)
    return (estimate_work_seconds(work, np, count_cores()) - work.seconds) / passes


def _list_cases(jobs: Iterable[Job]) -> list[Case]:
    """Return the distinct cases of jobs."""
    return list({case.id: case for case in chain.from_iterable(job.cases for job in jobs)}.values())


def _count_ranks(jobs: Iterable[Job]) -> Counter[str]:
    """Return the number of ranks of each case, over all its jobs on hosts."""
    ranks: Counter[str] = Counter()
    for job in jobs:
        for case in job.cases:
            ranks[case.id] += job.np
    return ranks


def _hash_case_work(plan: RunPlan, case: Case, np: int) -> str:
    argv = [arg for fault in plan.request.inject for arg in ("--inject", fault)]
    return hash_work(case.benchmark, case.entry.version, np, case.params, argv, case.id)


def _make_group_key(job: Job) -> tuple[object, ...]:
    """Return the repeat, the kind of hosts and the cases that jobs of one group share."""
    return job.repeat, job.host is not None, tuple(case.id for case in job.cases)


def _count_concurrent_by_group(jobs: Iterable[Job]) -> dict[tuple[object, ...], int]:
    """Return by group the number of jobs that run at once, each on its own host."""
    jobs_by_group: dict[tuple[object, ...], list[Job]] = defaultdict(list)
    for job in jobs:
        jobs_by_group[_make_group_key(job)].append(job)
    return {group: _count_concurrent(members) for group, members in jobs_by_group.items()}


def _count_concurrent(group: Sequence[Job]) -> int:
    if group[0].host is None:
        return 1
    return max(1, min(len(group), group[0].max_concurrent_hosts))


def _estimate_repeats(case: Case, past_durations: Sequence[PastDuration] | None) -> int:
    """Return the repeats of a case; with ``until``, those of its past runs."""
    if case.until is None or not past_durations:
        return case.repeat
    return max(case.repeat, round(median(row.launches for row in past_durations)))


_History = Mapping[str, Sequence["PastDuration"]]
"""The newest durations by work."""


def _read_history(plan: RunPlan, home: Path, works: Iterable[str]) -> _History:
    host_names = _list_host_names(plan)
    if host_names is None:
        return {}
    host_cores = os.cpu_count() if host_names == {socket.gethostname()} else None
    rows: list[PastDuration] = []
    # a Python may lack sqlite3, and a home may be unreadable
    with suppress(ImportError, OSError):
        from spbench.record.runs.index import find_past_durations

        rows = find_past_durations(home, set(works), host_names, host_cores)
    if not rows:
        return {}
    # Another MPI library, torch or processor counts as another machine. The newest row is that of
    # this run.
    rows = [row for row in rows if row.fingerprint == rows[0].fingerprint]
    history: dict[str, list[PastDuration]] = defaultdict(list)
    for row in rows:
        if len(history[row.work]) < MAX_RUNS:
            history[row.work].append(row)
    return dict(history)


def _list_host_names(plan: RunPlan) -> set[str] | None:
    """Return the names that the hosts of a plan have for themselves; None if unknown."""
    host_names: set[str] = set()
    for job in plan.jobs:
        hosts = plan.find_hosts(job)
        if hosts is not None:
            host_names.update(
                socket.gethostname() if is_local(name) else name for name in hosts.names
            )
        elif runs_locally(plan, job):
            host_names.add(socket.gethostname())
        else:
            return None
    return host_names


def _count_job_cores(plan: RunPlan, job: Job) -> int:
    """Return the cores that the ranks of a job share.

    Other hosts have one core per rank.
    """
    return count_cores() if runs_locally(plan, job) else job.np


def _estimate_start(
    plan: RunPlan, job: Job, load: Load | None, past_durations: Sequence[PastDuration] | None
) -> float:
    """Return the seconds from a launch until its first case begins."""
    past_seconds = [row.start for row in past_durations or () if row.start is not None]
    if past_seconds:
        return median(past_seconds)
    ranks_per_core = max(1.0, job.np / _count_job_cores(plan, job))
    imports_torch = any(case.imports_torch for case in job.cases)
    seconds_per_rank = TORCH_SECONDS if imports_torch else RANK_SECONDS
    return START_SECONDS + ranks_per_core * seconds_per_rank * _estimate_slowdown(plan, job, load)


def _estimate_slowdown(plan: RunPlan, job: Job, load: Load | None) -> float:
    """Return the factor by which other work on this machine slows a job down now.

    All processes that are ready to run get an equal share of the cores.
    """
    if load is None or not runs_locally(plan, job):
        return 1.0
    other_processes = min(load.minute_mean, load.num_runnable)
    processes_per_core = max(1.0, (job.np + other_processes) / load.cores)
    return processes_per_core / max(1.0, job.np / load.cores)


def _estimate_repeat(
    plan: RunPlan,
    job: Job,
    load: Load | None,
    case: Case,
    past_durations: Sequence[PastDuration] | None,
) -> tuple[float | None, EstimateSource]:
    """Return the seconds of one repeat of a case, if known, and their source."""
    if past_durations:
        return median(row.seconds for row in past_durations), EstimateSource.HISTORY
    work = None if may_use_gpu(case) else case.estimate_work(job.np)
    if work is None:
        return None, EstimateSource.UNKNOWN
    total_seconds = estimate_work_seconds(work, job.np, _count_job_cores(plan, job))
    computing_seconds = total_seconds - work.seconds
    slowed_seconds = _estimate_slowdown(plan, job, load) * computing_seconds
    return work.seconds + slowed_seconds, EstimateSource.WORK


def estimate_work_seconds(work: Work, np: int, cores: int) -> float:
    """Return the seconds of some work on ``np`` ranks and ``cores`` cores."""
    ranks_per_core = max(1.0, np / cores)
    return (
        work.flops / (FLOP_PER_SECOND * cores)
        + work.single_flops / FLOP_PER_SECOND
        + work.bytes / (BYTES_PER_SECOND * cores)
        + work.messages * MESSAGE_SECONDS * ranks_per_core**2
        + work.calls * CALL_SECONDS / min(np, cores)
        + work.seconds
    )
