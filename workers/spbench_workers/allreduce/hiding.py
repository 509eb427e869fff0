"""How much of a nonblocking collective a computation hides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from mpi4py import MPI

from spbench_workers.allreduce.base import Reduction
from spbench_workers.device.streams import finish, is_gpu, seconds_of
from spbench_workers.timing import hidden_share

ROUNDS = 15
LOOKS = 10
"""How often the computation looks in on the collective: an MPI without threads goes on only then"""
_CELLS = 2048
_ROWS = 512
"""Of the matrices that a GPU multiplies: some microseconds' work."""
_HOST = torch.device("cpu")


class TimedWork(Protocol):
    """A computation of about a given time."""

    def run(self, look: Callable[[], object]) -> None:
        """Compute, and look up now and then."""


def overlap(
    comm: MPI.Intracomm, reduction: Reduction, seconds: float, device: torch.device = _HOST
) -> float:
    """Return which share of a collective is hidden behind a computation as long as itself.

    With the times of the collective alone, of the computation alone, and of both at once, it is
    ``(alone + compute - both) / min(alone, compute)``: 1 where the shorter of them costs nothing
    more, 0 where they take as long as one after the other, below 0 where each is in the other's
    way. It is the same with both exchanged. OMB's takes the calls that look in away from the
    computation, divides by the collective alone and is cut off at 0; here looking in is a cost.

    Args:
        comm: The ranks; all must call it.
        reduction: The collective, in mode ``nonblocking``.
        seconds: About how long it takes, the same on all ranks.
        device: Whose computation is to hide it: a GPU's, where the GPU itself reduces.
    """
    compute: TimedWork = (
        Multiplications(seconds, device) if is_gpu(device) else Computation(seconds)
    )
    computing = partial(_alone, compute, device)
    alone, alone_compute, both = [], [], []
    for _ in range(ROUNDS):
        alone.append(_seconds(comm, reduction.run))
        alone_compute.append(_seconds(comm, computing))
        both.append(_seconds(comm, lambda: _both(reduction, compute)))
    whole, work = median(alone), median(alone_compute)
    return hidden_share(whole, median(both) - work, work)


class Computation:
    """Additions in the cache of a core, as many as take a given time.

    Args:
        seconds: The time.
    """

    def __init__(self, seconds: float) -> None:
        self._cells = np.zeros(_CELLS)
        self._count = 1
        self.run(_never)
        start = perf_counter()
        runs = 0
        while perf_counter() - start < 0.002:
            self._slice(100)
            runs += 100
        one = (perf_counter() - start) / runs
        self._count = max(1, round(seconds / one / LOOKS))

    def run(self, look: Callable[[], object]) -> None:
        """Compute, and look up now and then."""
        for _ in range(LOOKS):
            self._slice(self._count)
            look()

    def _slice(self, count: int) -> None:
        cells = self._cells
        for _ in range(count):
            np.add(cells, 1.0, cells)


class Multiplications:
    """Matrix products on the current stream of a GPU, as many as take a given time.

    They are asked for at once: NCCL needs nobody who looks in.

    Args:
        seconds: The time.
        device: The GPU.
    """

    def __init__(self, seconds: float, device: torch.device) -> None:
        # Zeros stay zeros, however often they are multiplied.
        self._matrices = [torch.zeros(_ROWS, _ROWS, device=device) for _ in range(3)]
        self._count = 1
        self.run(_never)
        few = 1
        while (taken := seconds_of(device, partial(self._multiply, few))) < 0.002:
            few *= 2
        self._count = max(1, round(seconds * few / taken))

    def run(self, look: Callable[[], object]) -> None:
        self._multiply(self._count)

    def _multiply(self, count: int) -> None:
        one, other, product = self._matrices
        for _ in range(count):
            torch.mm(one, other, out=product)


def _never() -> None:
    """Nothing to look at."""


def _alone(compute: TimedWork, device: torch.device) -> None:
    compute.run(_never)
    finish(device)


def _both(reduction: Reduction, compute: TimedWork) -> None:
    reduction.start()
    compute.run(reduction.poll)
    reduction.wait()


def _seconds(comm: MPI.Intracomm, body: Callable[[], object]) -> float:
    comm.Barrier()
    start = perf_counter()
    body()
    return perf_counter() - start
