"""Sums over ranks in an order of their own: from the last rank to the first, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_parallel.p2p.memory import memory_of


@dataclass(frozen=True, slots=True)
class ReferenceMoments:
    """Mean and variance by channel, over all ranks; and the number of values of each channel."""

    mean: torch.Tensor
    variance: torch.Tensor
    count: float


def everyones(comm: MPI.Comm, values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, ``ranks x ...``, in float64 on the host."""
    own = values.detach().double().cpu().contiguous()
    found = torch.empty((comm.size, *own.shape), dtype=torch.float64)
    comm.Allgather([memory_of(own), MPI.BYTE], [memory_of(found), MPI.BYTE])
    return found


def from_last_to_first(comm: MPI.Comm, values: torch.Tensor) -> torch.Tensor:
    """Return the sum over the ranks. All ranks must call it, and all get the same."""
    if comm.size == 1:
        return values.detach().double().cpu().contiguous()
    return added(everyones(comm, values))


def added(values: torch.Tensor) -> torch.Tensor:
    """Return the sum over the first axis, beginning with its last entry."""
    total = torch.zeros_like(values[0])
    for one in reversed(values.unbind()):
        total += one
    return total
