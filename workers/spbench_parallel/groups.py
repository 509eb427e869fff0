"""Collective calls: groups of ranks, agreement, and a sleeping barrier."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from spbench_parallel.errors import first_line

if TYPE_CHECKING:
    from mpi4py import MPI

Created = TypeVar("Created")

POLL_INTERVAL = 0.0005
"""Seconds that a rank in the sleeping barrier sleeps between two polls."""


class DisagreementError(RuntimeError):
    """Ranks have different configurations."""


def require_agreement(comm: MPI.Intracomm, configuration: dict[str, Any]) -> None:
    """Check that all ranks have the same configuration, before any of them sends data.

    Raises:
        DisagreementError: A rank differs from rank 0. All ranks raise it, for the first such rank.
    """
    texts = comm.allgather(json.dumps(configuration, sort_keys=True))
    for rank, text in enumerate(texts):
        if text != texts[0]:
            raise DisagreementError(
                f"rank {rank}: configuration differs from rank 0 "
                f"(expected {texts[0]}, got {text}); pass the same arguments to all ranks"
            )


def create_on_all_ranks(
    comm: MPI.Intracomm, create: Callable[[], Created], make_error: Callable[[int, str], Exception]
) -> Created:
    """Return the object that this rank creates, after every rank has created its own.

    Args:
        comm: The ranks, all of which must call it.
        create: Creates the object, without waiting for other ranks.
        make_error: Makes the error that all ranks raise, from the first failed rank and the reason.

    Raises:
        Exception: ``create`` failed on a rank, with an error of torch, MPI or the system.
    """
    created = None
    problem = ""
    try:
        created = create()
    except (RuntimeError, OSError) as error:
        problem = first_line(error)
    for rank, text in enumerate(comm.allgather(problem)):
        if text:
            raise make_error(rank, text)
    return cast(Created, created)


def create_group(world: MPI.Intracomm, ranks: Iterable[int]) -> MPI.Intracomm:
    """Return a communicator of some ranks, in their order; these ranks must call it."""
    world_group = world.Get_group()
    group = world_group.Incl(list(ranks))
    comm = world.Create_group(group)
    group.Free()
    world_group.Free()
    return comm


def is_on_one_host(comm: MPI.Intracomm) -> bool:
    """Return whether all ranks can share memory.

    All ranks must call it, and all get the same.
    """
    from mpi4py import MPI

    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    size = local.size
    local.Free()
    smallest: int = comm.allreduce(size, op=MPI.MIN)
    return smallest == comm.size


def sleep_at_barrier(comm: MPI.Intracomm) -> None:
    """Wait for all ranks without using the cores, which other ranks may still need."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(POLL_INTERVAL)
