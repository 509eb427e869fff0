"""The capacity of this machine: reject a run that would stall it, before any rank starts.

Ranks that share a core take turns, and ranks without memory are killed by the kernel. Only jobs on
this machine are checked: the slots of other hosts say how many ranks these take.
"""

from __future__ import annotations

from collections.abc import Iterator

from spbench.engine.plan import RunPlan, runs_here
from spbench.errors import MissingError
from spbench.launch.gpu_needs import may_use_gpu
from spbench.launch.jobs import Job
from spbench.launch.placement import cores
from spbench.record.machine.machine_files import available_memory
from spbench.record.number_formatting import format_size
from spbench.suites.case import Case
from spbench_core.quantities import format_quantity

MOST_PER_CORE = 4
"""Whole ranks per core that are allowed: suites/resnet_sp.yaml has 9 ranks, for two cores."""
TORCH_BYTES = 150e6
"""Private memory of a rank with torch; 148 MB as measured on 2026-11-27 with torch for CPUs."""
RANK_BYTES = 20e6
"""The same without torch, at least."""
REMEDY = "name other hosts with --hostfile, leave cases out with -k, or add --oversubscribe"


def find_rejection(plan: RunPlan) -> str | None:
    """Return why this machine has too few cores or too little memory for a run; None if not."""
    checked = [
        job for job in plan.jobs if runs_here(plan, job) and job.settings.oversubscribe != "force"
    ]
    available = cores()
    # Those that may not share cores at all are checked by `devices.check_devices`.
    sharing = [job for job in checked if job.settings.oversubscribe]
    most = max(sharing, key=lambda job: job.np, default=None)
    if most is not None and most.np // available > MOST_PER_CORE:
        return _too_many_ranks(most, available)
    return _too_little_memory(checked)


def reject_over_capacity(plan: RunPlan) -> None:
    """Reject a run that this machine has too few cores or too little memory for.

    Raises:
        MissingError: The message says what the run wants, and what this machine has.
    """
    rejection = find_rejection(plan)
    if rejection is not None:
        raise MissingError(f"{rejection}; {REMEDY}")


def _too_many_ranks(job: Job, available: int) -> str:
    return (
        f"case {job.cases[0].id} wants {job.np} ranks, and this machine has "
        f"{format_quantity(available, 'core')}: {job.np / available:.3g} ranks per core, more than "
        f"{MOST_PER_CORE}"
    )


def _too_little_memory(jobs: list[Job]) -> str | None:
    """Return the rejection of the case with the most memory, if that is not available."""
    needs = [(_least_bytes(job, case), job, case) for job, case in _cases(jobs)]
    if not needs:
        return None
    needed, job, case = max(needs, key=lambda need: need[0])
    available = available_memory()
    if available is None or needed <= available:
        return None
    return (
        f"case {case.id} needs at least {format_size(needed)} of memory for its "
        f"{format_quantity(job.np, 'rank')}, and this machine has {format_size(available)} "
        "available"
    )


def _cases(jobs: list[Job]) -> Iterator[tuple[Job, Case]]:
    for job in jobs:
        for case in job.cases:
            yield job, case


def _least_bytes(job: Job, case: Case) -> float:
    """Return the memory that the ranks of a case need at least, all together."""
    ranks = job.np * (TORCH_BYTES if case.imports_torch else RANK_BYTES)
    work = None if may_use_gpu(case) else case.estimate_work(job.np)
    return ranks + (work.memory if work is not None else 0.0)
