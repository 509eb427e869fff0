"""Local ranks, from launchers' environments and from the machines of all ranks.

Standard library only. A launcher sets it before MPI starts. It does not depend on MPI's view of the
host: with MVAPICH2's ch3:sock, MPI's communicator of ranks that share memory has only one rank.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

VARIABLES = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "PMI_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
)
"""Variables of Open MPI, MVAPICH2, MVAPICH, Hydra with Intel MPI, PALS, Cray's PMI, Flux and srun.

srun comes last, since a Slurm script passes its own variable on to the ranks of other launchers.
"""
_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")


@dataclass(frozen=True, slots=True)
class RankLocation:
    """The location of one rank, which it sends to all ranks.

    Attributes:
        host: The host name that the rank sees; a container may have its own.
        boot: The kernel's id of this start of the machine; empty if it is unknown.
        launcher_rank: The launcher's local rank and its variable; None if the launcher sets none.
        cpus: The CPUs on which the rank may run.
    """

    host: str
    boot: str
    launcher_rank: tuple[int, str] | None
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocalRanks:
    """Local ranks and machines of all ranks.

    Attributes:
        local_ranks: The local rank of each rank.
        machines: The machine of each rank, identified by the lowest rank on it.
        conflict: A message about a rank for which launcher and machines disagree, the same on all
            ranks; empty without one.
    """

    local_ranks: tuple[int, ...]
    machines: tuple[int, ...]
    conflict: str = ""


def assign_local_ranks(locations: Sequence[RankLocation]) -> LocalRanks:
    """Return the local ranks and machines of all ranks, from their locations.

    Machines are identified by host name and boot id, since several may have the same name. The
    launcher's local ranks are used if they number the ranks of each machine from 0. If not,
    machines are identified only by boot id, because containers may have their own host names. If
    the launcher's local ranks do not fit either, or if there are none, ranks are numbered in their
    order.
    """
    by_host_and_boot = _find_machines((location.host, location.boot) for location in locations)
    by_boot = _find_machines(location.boot or location.host for location in locations)
    launcher_ranks = [
        location.launcher_rank[0] for location in locations if location.launcher_rank is not None
    ]
    for machines in (by_host_and_boot, by_boot):
        if len(launcher_ranks) == len(locations) and _fits(launcher_ranks, machines):
            return LocalRanks(tuple(launcher_ranks), machines)
    numbered = _number_local_ranks(by_host_and_boot)
    return LocalRanks(numbered, by_host_and_boot, _describe_conflict(locations, numbered))


def _find_machines(keys: Iterable[Hashable]) -> tuple[int, ...]:
    first_rank_by_key: dict[Hashable, int] = {}
    return tuple(first_rank_by_key.setdefault(key, rank) for rank, key in enumerate(keys))


def _fits(local_ranks: Iterable[int], machines: Sequence[int]) -> bool:
    """Return whether the local ranks of each machine are 0, 1, 2, ... in any order."""
    pairs = zip(machines, local_ranks, strict=True)
    return sorted(pairs) == sorted(zip(machines, _number_local_ranks(machines), strict=True))


def _number_local_ranks(machines: Iterable[int]) -> tuple[int, ...]:
    """Return the position of each rank among the ranks of its machine."""
    count_by_machine: dict[int, int] = {}
    local_ranks = []
    for machine in machines:
        local_ranks.append(count_by_machine.get(machine, 0))
        count_by_machine[machine] = local_ranks[-1] + 1
    return tuple(local_ranks)


def _describe_conflict(locations: Sequence[RankLocation], local_ranks: Iterable[int]) -> str:
    for rank, (location, local_rank) in enumerate(zip(locations, local_ranks, strict=True)):
        if location.launcher_rank is None:
            continue
        launcher_rank, variable = location.launcher_rank
        if launcher_rank != local_rank:
            return (
                f"rank {rank} is local rank {launcher_rank} by {variable} and {local_rank} by the "
                f"host names of the ranks, {location.host} here: give each host one "
                "name of its own, in the hostfile as in its containers"
            )
    return ""


def read_local_rank(environ: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the launcher's local rank and its variable; None if no launcher sets one."""
    for name in VARIABLES:
        value = environ.get(name, "")
        stale = name == "SLURM_LOCALID" and not any(step in environ for step in _SLURM_STEP)
        if value.isdigit() and not stale:
            return int(value), name
    return None
