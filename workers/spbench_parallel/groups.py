"""Calls that all ranks of a communicator make together: groups, agreement, a sleeping barrier."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from spbench_parallel.errors import first_line

if TYPE_CHECKING:
    from mpi4py import MPI

Made = TypeVar("Made")

REST_INTERVAL = 0.0005
"""Seconds that a resting rank sleeps between two polls."""


class DisagreementError(RuntimeError):
    """Ranks were given different configurations."""


def agree(comm: MPI.Intracomm, configuration: dict[str, Any]) -> None:
    """Compare the configuration over all ranks, before any of them sends data.

    Raises:
        DisagreementError: A rank differs from rank 0; all ranks raise it, and it names the first.
    """
    texts = comm.allgather(json.dumps(configuration, sort_keys=True))
    for rank, text in enumerate(texts):
        if text != texts[0]:
            raise DisagreementError(
                f"rank {rank} was started with {text}, rank 0 with {texts[0]}: "
                "start all ranks with the same words"
            )


def made_on_all(
    comm: MPI.Intracomm, make: Callable[[], Made], refusal: Callable[[int, str], Exception]
) -> Made:
    """Return what this rank makes, once all ranks have made theirs.

    Args:
        comm: The ranks, all of which must call it.
        make: Makes it, without waiting for other ranks.
        refusal: Returns the error of all ranks, from the first rank that failed and why.

    Raises:
        Exception: ``make`` failed on a rank, by an error of torch, MPI or the system.
    """
    made, problem = None, ""
    try:
        made = make()
    except (RuntimeError, OSError) as error:
        problem = first_line(error)
    for rank, said in enumerate(comm.allgather(problem)):
        if said:
            raise refusal(rank, said)
    return cast(Made, made)


def group_of(world: MPI.Intracomm, ranks: Iterable[int]) -> MPI.Intracomm:
    """Return a communicator of some ranks, in their order; these ranks must call it."""
    everyone = world.Get_group()
    group = everyone.Incl(list(ranks))
    comm = world.Create_group(group)
    group.Free()
    everyone.Free()
    return comm


def on_one_host(comm: MPI.Intracomm) -> bool:
    """Whether all ranks can share memory. All ranks must call it, and all get the same answer."""
    from mpi4py import MPI

    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    size = local.size
    local.Free()
    smallest: int = comm.allreduce(size, op=MPI.MIN)
    return smallest == comm.size


def rest(comm: MPI.Intracomm) -> None:
    """Wait for all ranks in a sleeping barrier, which leaves the cores to ranks that still work."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(REST_INTERVAL)
