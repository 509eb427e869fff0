"""The check that no job has more ranks than devices, if each rank needs its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from spbench.errors import MissingError
from spbench.launch.gpu_needs import needs_gpu
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.jobs import Job, may_choose_hosts
from spbench.launch.placement import count_cores, count_slots
from spbench_core.number_text import format_quantity

_MAX_NODES_BYTES = 16 << 20
"""Bytes read of a scheduler's list of nodes, which has a name for each core."""
_CPUS_OF_NODES = re.compile(r"(\d+)(?:\(x(\d+)\))?")
"""A part of Slurm's ``SLURM_JOB_CPUS_PER_NODE``: ``16(x2)`` are two nodes with 16."""


def check_devices(jobs: Iterable[tuple[Job, Hosts | None]], env: Mapping[str, str]) -> None:
    """Reject jobs with more ranks than devices, unless they may oversubscribe.

    Jobs on GPUs are left to `gpu_needs.check_gpus`. If an allocation does not show its number of
    devices, the launcher rejects the job.

    Raises:
        MissingError: The message states the number of requested and of available devices.
    """
    shortage = find_shortage(jobs, env)
    if shortage is not None:
        message, available = shortage
        raise MissingError(
            f"{message}: plan for {available}, name hosts with --hostfile, or add --oversubscribe"
        )


def find_shortage(
    jobs: Iterable[tuple[Job, Hosts | None]], env: Mapping[str, str]
) -> tuple[str, int] | None:
    """Return why `check_devices` rejects a job, and the available devices."""
    for job, hosts in jobs:
        if job.settings.oversubscribe or any(map(needs_gpu, job.cases)):
            continue
        devices_and_description = count_available_devices(job, hosts, env)
        if devices_and_description is None:
            continue
        num_devices, description = devices_and_description
        if job.np > num_devices:
            request = f"case {job.cases[0].id} is for {job.np} devices, one for each rank"
            return f"{request}, and {description}", num_devices
    return None


def count_available_devices(
    job: Job, hosts: Hosts | None, env: Mapping[str, str]
) -> tuple[int, str] | None:
    """Return the number of devices of a job, and its description; None if unknown.

    With a hostfile or ``--hosts`` these are slots, in an allocation its cores, and otherwise the
    cores of this machine that this process may use.
    """
    if hosts is not None:
        slots = count_slots(hosts, job.settings.ranks_per_host)
        return slots, f"{hosts.source} has {format_quantity(slots, 'slot')}"
    if may_choose_hosts(job.settings, hosts, env):
        allocated = _count_allocated_cores(env)
        if allocated is None:
            return None
        return allocated, f"the allocation has {format_quantity(allocated, 'core')}"
    count = count_cores()
    return count, f"this machine has {format_quantity(count, 'core')}"


def _count_allocated_cores(env: Mapping[str, str]) -> int | None:
    """Return the cores of the batch allocation; None if variables do not show them."""
    if "SLURM_JOB_ID" in env:
        node_groups = env.get("SLURM_JOB_CPUS_PER_NODE", "").split(",")
        matches = [_CPUS_OF_NODES.fullmatch(node_group.strip()) for node_group in node_groups]
        cores_by_group = [
            int(match[1]) * int(match[2] or 1) for match in matches if match is not None
        ]
        return sum(cores_by_group) if len(cores_by_group) == len(node_groups) else None
    if "PBS_NODEFILE" in env:
        with suppress(OSError, UnicodeDecodeError), Path(env["PBS_NODEFILE"]).open() as file:
            return len(file.read(_MAX_NODES_BYTES).split())
        return None
    core_count = env.get("LSB_DJOB_NUMPROC", "")
    return int(core_count) if "LSB_JOBID" in env and core_count.isdecimal() else None
