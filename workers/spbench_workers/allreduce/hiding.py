"""How much of a nonblocking collective a computation hides."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
from mpi4py import MPI

from spbench_workers.allreduce.base import Reduction
from spbench_workers.timing import hidden_share

ROUNDS = 15
LOOKS = 10
"""How often the computation looks in on the collective: an MPI without threads goes on only then"""
_CELLS = 2048


def overlap(comm: MPI.Intracomm, reduction: Reduction, seconds: float) -> float:
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
    """
    compute = Computation(seconds)
    alone, alone_compute, both = [], [], []
    for _ in range(ROUNDS):
        alone.append(_seconds(comm, reduction.run))
        alone_compute.append(_seconds(comm, lambda: compute.run(_never)))
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


def _never() -> None:
    """Nothing to look at."""


def _both(reduction: Reduction, compute: Computation) -> None:
    reduction.start()
    compute.run(reduction.poll)
    reduction.wait()


def _seconds(comm: MPI.Intracomm, body: Callable[[], object]) -> float:
    comm.Barrier()
    start = perf_counter()
    body()
    return perf_counter() - start
