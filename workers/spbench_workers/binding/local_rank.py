"""The local rank, by the launcher's environment and by the machines of all ranks.

Standard library only. A launcher sets it before MPI starts, and whatever MPI makes of the host:
with MVAPICH2's ch3:sock each rank is alone in MPI's communicator of ranks that share memory.
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
srun comes last: a Slurm script hands its own on to the ranks of other launchers."""
_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")


@dataclass(frozen=True, slots=True)
class RankLocation:
    """One rank's word on its machine, which all ranks hear.

    Attributes:
        host: The host name that the rank sees; a container may have one of its own.
        boot: The kernel's id of this start of the machine; empty where it is not told.
        told: The launcher's local rank and its variable.
        cpus: The CPUs on which the rank may run.
    """

    host: str
    boot: str
    launcher_rank: tuple[int, str] | None
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocalRanks:
    """Places of all ranks.

    Attributes:
        local_ranks: The local rank of each rank.
        machines: The machine of each rank, as the lowest rank on it.
        doubt: The sentence on a rank of which launcher and machines say different things, the same
            on all ranks; empty where they agree.
    """

    local_ranks: tuple[int, ...]
    machines: tuple[int, ...]
    conflict: str = ""


def assign_local_ranks(every: Sequence[RankLocation]) -> LocalRanks:
    """Return the places of all ranks, from what each of them has said.

    Machines are told apart by host name and boot id, since several may have one name. The
    launcher's local ranks hold where they count the ranks of each machine once; if not, machines
    are taken by boot id alone, for containers have host names of their own. Where that does not fit
    either, or no launcher tells, ranks are counted in their order.
    """
    named = _machines((one.host, one.boot) for one in every)
    for machines in (named, _machines(one.boot or one.host for one in every)):
        told = [one.launcher_rank[0] for one in every if one.launcher_rank is not None]
        if len(told) == len(every) and _counts_once(told, machines):
            return LocalRanks(tuple(told), machines)
    counted = _number_local_ranks(named)
    return LocalRanks(counted, named, _doubt(every, counted))


def _machines(keys: Iterable[Hashable]) -> tuple[int, ...]:
    first: dict[Hashable, int] = {}
    return tuple(first.setdefault(key, rank) for rank, key in enumerate(keys))


def _counts_once(told: Iterable[int], machines: Sequence[int]) -> bool:
    """Whether the local ranks of each machine are 0, 1, 2 and so on, in any order."""
    pairs = zip(machines, told, strict=True)
    return sorted(pairs) == sorted(zip(machines, _number_local_ranks(machines), strict=True))


def _number_local_ranks(machines: Iterable[int]) -> tuple[int, ...]:
    """Return the position of each rank among the ranks of its machine."""
    seen: dict[int, int] = {}
    ranks = []
    for machine in machines:
        ranks.append(seen.get(machine, 0))
        seen[machine] = ranks[-1] + 1
    return tuple(ranks)


def _doubt(every: Sequence[RankLocation], counted: Iterable[int]) -> str:
    for rank, (one, local_rank) in enumerate(zip(every, counted, strict=True)):
        if one.launcher_rank is not None and one.launcher_rank[0] != local_rank:
            return (
                f"rank {rank} is local rank {one.launcher_rank[0]} by {one.launcher_rank[1]} and "
                f"{local_rank} by the host names of the ranks, {one.host} here: give each host one "
                "name of its own, in the hostfile as in its containers"
            )
    return ""


def read_local_rank(environ: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the local rank and the variable that tells it.

    None where no launcher sets one.
    """
    for name in VARIABLES:
        value = environ.get(name, "")
        stale = name == "SLURM_LOCALID" and not any(step in environ for step in _SLURM_STEP)
        if value.isdigit() and not stale:
            return int(value), name
    return None
