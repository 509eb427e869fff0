"""Refuse jobs with more ranks than devices, if each rank needs its own, as for a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from spbench.errors import MissingError
from spbench.launch.gpu_needs import needs_gpu
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.jobs import Job, chosen_elsewhere
from spbench.launch.placement import available_slots, cores
from spbench_core.quantities import format_quantity

_MOST_NODES = 16 << 20
"""Letters of a scheduler's list of nodes, with a name for each core."""
_CPUS_OF_NODES = re.compile(r"(\d+)(?:\(x(\d+)\))?")
"""A part of Slurm's ``SLURM_JOB_CPUS_PER_NODE``: ``16(x2)`` are two nodes of 16."""


def check_devices(jobs: Iterable[tuple[Job, Hosts | None]], env: Mapping[str, str]) -> None:
    """Refuse jobs with more ranks than devices, if their settings forbid ``oversubscribe``.

    `gpu_needs.check_gpus` checks jobs on GPUs. If an allocation does not say how many devices it
    has, the launcher refuses the job.

    Raises:
        MissingError: It says how many devices are wanted and how many are available.
    """
    shortage = find_shortage(jobs, env)
    if shortage is not None:
        sentence, available = shortage
        raise MissingError(
            f"{sentence}: plan for {available}, name hosts with --hostfile, or add --oversubscribe"
        )


def find_shortage(
    jobs: Iterable[tuple[Job, Hosts | None]], env: Mapping[str, str]
) -> tuple[str, int] | None:
    """Return the first job that `check_devices` rejects, in words, and the available devices."""
    for job, hosts in jobs:
        if job.settings.oversubscribe or any(map(needs_gpu, job.cases)):
            continue
        devices = available_devices(job, hosts, env)
        if devices is not None and job.np > devices[0]:
            case = job.cases[0].id
            available, place = devices
            wanted = f"case {case} is for {job.np} devices, one for each rank"
            return f"{wanted}, and {place}", available
    return None


def available_devices(
    job: Job, hosts: Hosts | None, env: Mapping[str, str]
) -> tuple[int, str] | None:
    """Return the number of devices of a job's launcher, also in words; None if it is unknown.

    With a hostfile or ``--hosts`` they are the slots, in an allocation its cores, and else the
    cores of this machine that this process may use.
    """
    if hosts is not None:
        slots = available_slots(hosts, job.settings.ranks_per_host)
        return slots, f"{hosts.source} has {format_quantity(slots, 'slot')}"
    if chosen_elsewhere(job.settings, hosts, env):
        count = _allocated(env)
        return (
            None
            if count is None
            else (count, f"the allocation has {format_quantity(count, 'core')}")
        )
    count = cores()
    return count, f"this machine has {format_quantity(count, 'core')}"


def _allocated(env: Mapping[str, str]) -> int | None:
    """Return the cores of the batch allocation that variables show; None if they do not."""
    if "SLURM_JOB_ID" in env:
        parts = env.get("SLURM_JOB_CPUS_PER_NODE", "").split(",")
        matches = [_CPUS_OF_NODES.fullmatch(part.strip()) for part in parts]
        counts = [int(match[1]) * int(match[2] or 1) for match in matches if match is not None]
        return sum(counts) if len(counts) == len(parts) else None
    if "PBS_NODEFILE" in env:
        with suppress(OSError, UnicodeDecodeError), Path(env["PBS_NODEFILE"]).open() as file:
            return len(file.read(_MOST_NODES).split())
        return None
    count = env.get("LSB_DJOB_NUMPROC", "")
    return int(count) if "LSB_JOBID" in env and count.isdecimal() else None
