"""The capacity of this machine, checked before any rank starts.

Ranks that share a core take turns, and the kernel kills ranks without memory. Only jobs on this
machine are checked, because the slots of other hosts limit the number of ranks there.
"""

from __future__ import annotations

from spbench.engine.plan import RunPlan, runs_locally
from spbench.errors import MissingError
from spbench.launch.gpu_needs import may_use_gpu
from spbench.launch.jobs import Job
from spbench.launch.placement import count_cores
from spbench.record.machine.machine_files import read_available_memory
from spbench.record.number_formatting import format_size
from spbench.suites.case import Case
from spbench_core.number_text import format_quantity

MAX_RANKS_PER_CORE = 4
"""The largest number of whole ranks per core.

suites/resnet_sp.yaml has 9 ranks and must run on two cores.
"""
TORCH_BYTES = 150e6
"""Private memory of a rank with torch: 148 MB, measured on 2026-11-27 with torch for CPUs."""
RANK_BYTES = 20e6
"""A lower bound of the private memory of a rank without torch."""
REMEDY = "name other hosts with --hostfile, leave cases out with -k, or add --oversubscribe"


def find_rejection(plan: RunPlan) -> str | None:
    """Return why this machine is too small for a run; None if it is not."""
    jobs = _list_excess_jobs(plan)
    if jobs:
        largest_job = max(jobs, key=lambda job: job.np)
        return _describe_excess_ranks(largest_job, largest_job.cases[0])
    return _describe_lacking_memory(_list_checked_jobs(plan))


def find_excess_ranks(plan: RunPlan) -> dict[str, str]:
    """Return a message for each case with too many ranks here, by the case's id."""
    return {
        case.id: _describe_excess_ranks(job, case)
        for job in _list_excess_jobs(plan)
        for case in job.cases
    }


def _list_checked_jobs(plan: RunPlan) -> list[Job]:
    return [
        job
        for job in plan.jobs
        if runs_locally(plan, job) and job.settings.oversubscribe != "force"
    ]


def _list_excess_jobs(plan: RunPlan) -> list[Job]:
    cores = count_cores()
    # jobs that may not share cores at all are left to `devices.check_devices`
    sharing = [job for job in _list_checked_jobs(plan) if job.settings.oversubscribe]
    return [job for job in sharing if job.np // cores > MAX_RANKS_PER_CORE]


def reject_over_capacity(plan: RunPlan) -> None:
    """Reject a run for which this machine has too few cores or too little memory.

    Raises:
        MissingError: The message compares the need of the run with this machine.
    """
    rejection = find_rejection(plan)
    if rejection is not None:
        raise MissingError(f"{rejection}; {REMEDY}")


def _describe_excess_ranks(job: Job, case: Case) -> str:
    cores = count_cores()
    return (
        f"case {case.id} wants {job.np} ranks, and this machine has "
        f"{format_quantity(cores, 'core')}: {job.np / cores:.3g} ranks per core, more than "
        f"{MAX_RANKS_PER_CORE}"
    )


def _describe_lacking_memory(jobs: list[Job]) -> str | None:
    """Return a message if a case needs more memory than is available."""
    needs = [(_estimate_bytes(job, case), job, case) for job in jobs for case in job.cases]
    if not needs:
        return None
    needed_bytes, job, case = max(needs, key=lambda need: need[0])
    available_bytes = read_available_memory()
    if available_bytes is None or needed_bytes <= available_bytes:
        return None
    return (
        f"case {case.id} needs at least {format_size(needed_bytes)} of memory for its "
        f"{format_quantity(job.np, 'rank')}, and this machine has {format_size(available_bytes)} "
        "available"
    )


def _estimate_bytes(job: Job, case: Case) -> float:
    """Return a lower bound of the memory of all ranks of a case."""
    rank_bytes = job.np * (TORCH_BYTES if case.imports_torch else RANK_BYTES)
    work = None if may_use_gpu(case) else case.estimate_work(job.np)
    return rank_bytes + (work.memory if work is not None else 0.0)
