"""Overlap: the share of a nonblocking collective that a computation hides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from mpi4py import MPI

from spbench_parallel.device.streams import is_gpu, synchronize_stream, time_on_device
from spbench_workers.collectives.base import Reduction
from spbench_workers.timing import hidden_share

ROUNDS = 15
POLLS = 10
"""Polls of the collective in a computation: an MPI without threads progresses only then."""
_CELLS = 2048
_ROWS = 512
"""Rows of the matrices that a GPU multiplies: some microseconds of work."""
_HOST = torch.device("cpu")


class TimedWork(Protocol):
    """A computation that takes about a given time."""

    def run(self, poll: Callable[[], object]) -> None:
        """Compute, and call ``look`` now and then."""


def measure_overlap(
    comm: MPI.Intracomm, reduction: Reduction, seconds: float, device: torch.device = _HOST
) -> float:
    """Return the share of a collective that is hidden behind a computation as long as itself.

    With the times of the collective, of the computation, and of both at once, it is
    ``(collective + compute - both) / min(collective, compute)``: 1 where the shorter of them costs
    nothing more, 0 where they take as long as one after the other, below 0 where they slow each
    other down. It is the same with both exchanged. OMB's takes the polls away from the
    computation, divides by the collective and is cut off at 0; here polling is a cost.

    Args:
        comm: The ranks; all must call it.
        reduction: The collective, in mode ``nonblocking``.
        seconds: About its time, the same on all ranks.
        device: The device that computes meanwhile: the GPU, where the GPU itself reduces.
    """
    compute: TimedWork = (
        GpuComputation(seconds, device) if is_gpu(device) else HostComputation(seconds)
    )
    computing = partial(_compute_only, compute, device)
    collective = []
    computation = []
    both = []
    for _ in range(ROUNDS):
        collective.append(_seconds(comm, reduction.run))
        computation.append(_seconds(comm, computing))
        both.append(_seconds(comm, lambda: _both(reduction, compute)))
    whole = median(collective)
    work = median(computation)
    return hidden_share(whole, median(both) - work, work)


class HostComputation:
    """Additions in the cache of a core that take a given time.

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
        self._count = max(1, round(seconds / one / POLLS))

    def run(self, poll: Callable[[], object]) -> None:
        """Compute, and call ``look`` now and then."""
        for _ in range(POLLS):
            self._slice(self._count)
            poll()

    def _slice(self, count: int) -> None:
        cells = self._cells
        for _ in range(count):
            np.add(cells, 1.0, cells)


class GpuComputation:
    """Matrix products on the current stream of a GPU that take a given time.

    They are launched at once: NCCL progresses without polls.

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
        while (taken := time_on_device(device, partial(self._multiply, few))) < 0.002:
            few *= 2
        self._count = max(1, round(seconds * few / taken))

    def run(self, poll: Callable[[], object]) -> None:
        self._multiply(self._count)

    def _multiply(self, count: int) -> None:
        one, other, product = self._matrices
        for _ in range(count):
            torch.mm(one, other, out=product)


def _never() -> None:
    """Do nothing: no collective is under way."""


def _compute_only(compute: TimedWork, device: torch.device) -> None:
    compute.run(_never)
    synchronize_stream(device)


def _both(reduction: Reduction, compute: TimedWork) -> None:
    reduction.start()
    compute.run(reduction.poll)
    reduction.wait()


def _seconds(comm: MPI.Intracomm, body: Callable[[], object]) -> float:
    comm.Barrier()
    start = perf_counter()
    body()
    return perf_counter() - start
