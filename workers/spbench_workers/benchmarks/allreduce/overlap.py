"""Measurement of the share of a nonblocking collective that a computation hides."""

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
from spbench_workers.collectives.base import Collective
from spbench_workers.timing import compute_hidden_share

ROUNDS = 15
POLLS = 10
"""Polls of the collective in a computation. An MPI without threads progresses only in them."""
_CELLS = 2048
_ROWS = 512
"""Rows of the matrices that a GPU multiplies, which take some microseconds."""
_HOST = torch.device("cpu")


class TimedWork(Protocol):
    """A computation that takes about a given time."""

    def run(self, poll: Callable[[], object]) -> None:
        """Compute, and call ``poll`` at intervals."""


def measure_overlap(
    comm: MPI.Intracomm, collective: Collective, seconds: float, device: torch.device = _HOST
) -> float:
    """Return the share of a collective that an equally long computation hides.

    From the times of the collective, of the computation, and of both at once, the share is
    ``(collective + compute - both) / min(collective, compute)``. It is 1 if the shorter one costs
    no extra time, 0 if they take as long as one after the other, and below 0 if they slow each
    other down. Unlike here, OMB subtracts the polls from the computation, divides by the collective
    and clips at 0.

    Args:
        comm: The ranks; all must call it.
        collective: The collective, in mode ``nonblocking``.
        seconds: About its time, the same on all ranks.
        device: The device that computes at the same time: the GPU if the GPU itself reduces.
    """
    compute: TimedWork = (
        GpuComputation(seconds, device) if is_gpu(device) else HostComputation(seconds)
    )
    computing = partial(_compute_only, compute, device)
    collective_rounds = []
    computation_rounds = []
    combined_rounds = []
    for _ in range(ROUNDS):
        collective_rounds.append(_time_call(comm, collective.run))
        computation_rounds.append(_time_call(comm, computing))
        combined_rounds.append(_time_call(comm, lambda: _run_both(collective, compute)))
    collective_seconds = median(collective_rounds)
    compute_seconds = median(computation_rounds)
    return compute_hidden_share(
        collective_seconds, median(combined_rounds) - compute_seconds, compute_seconds
    )


class HostComputation:
    """Additions in the cache of a core that take a given time.

    Args:
        seconds: The time.
    """

    def __init__(self, seconds: float) -> None:
        self._cells = np.zeros(_CELLS)
        self._slices_per_poll = 1
        self.run(_poll_nothing)
        start = perf_counter()
        slices = 0
        while perf_counter() - start < 0.002:
            self._slice(100)
            slices += 100
        slice_seconds = (perf_counter() - start) / slices
        self._slices_per_poll = max(1, round(seconds / slice_seconds / POLLS))

    def run(self, poll: Callable[[], object]) -> None:
        """Compute, and call ``poll`` at intervals."""
        for _ in range(POLLS):
            self._slice(self._slices_per_poll)
            poll()

    def _slice(self, count: int) -> None:
        cells = self._cells
        for _ in range(count):
            np.add(cells, 1.0, cells)


class GpuComputation:
    """Matrix products on the current stream of a GPU that take a given time.

    They are launched all at once, because NCCL progresses without polls.

    Args:
        seconds: The time.
        device: The GPU.
    """

    def __init__(self, seconds: float, device: torch.device) -> None:
        # Products of zeros stay zeros, so no value overflows.
        self._matrices = [torch.zeros(_ROWS, _ROWS, device=device) for _ in range(3)]
        self._products = 1
        self.run(_poll_nothing)
        count = 1
        while (seconds_taken := time_on_device(device, partial(self._multiply, count))) < 0.002:
            count *= 2
        self._products = max(1, round(seconds * count / seconds_taken))

    def run(self, poll: Callable[[], object]) -> None:
        self._multiply(self._products)

    def _multiply(self, count: int) -> None:
        left, right, product = self._matrices
        for _ in range(count):
            torch.mm(left, right, out=product)


def _poll_nothing() -> None:
    """Do nothing, because no collective is running."""


def _compute_only(compute: TimedWork, device: torch.device) -> None:
    compute.run(_poll_nothing)
    synchronize_stream(device)


def _run_both(collective: Collective, compute: TimedWork) -> None:
    collective.start()
    compute.run(collective.poll)
    collective.wait()


def _time_call(comm: MPI.Intracomm, body: Callable[[], object]) -> float:
    comm.Barrier()
    start = perf_counter()
    body()
    return perf_counter() - start
