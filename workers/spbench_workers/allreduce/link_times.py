"""The numbers of the model, measured in this job: messages, reductions and copies by size."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from mpi4py import MPI

from spbench_workers.allreduce.arithmetic import Action, copy_into, reduce_into
from spbench_workers.allreduce.cost_model import Link
from spbench_workers.allreduce.link_fit import Fit, Line, Point, fit, fit_line
from spbench_workers.comm import rest
from spbench_workers.link.pair import one_way_seconds
from spbench_workers.link.schedule import rounds
from spbench_workers.timing import time_batch

MESSAGE_BYTES = (8, 128, 2 << 10, 32 << 10, 256 << 10, 1 << 20)
MEMORY_BYTES = (4 << 10, 32 << 10, 256 << 10, 1 << 20)
_TRIPS = 20
_REPEATS = 15
_ROUNDS = 3
"""How often all is measured; the least median counts, in which nothing else held the ranks up."""


@dataclass(frozen=True, slots=True)
class JobLink:
    """What was measured, the same on all ranks.

    Attributes:
        fit: Messages between neighbours in the order of ranks, and reductions; None for one rank.
        copy: A copy within a rank's memory.
    """

    fit: Fit | None
    copy: Line

    def seconds(self, copied: int, predict: Callable[[Link], float]) -> float:
        """Return what a prediction is, with a copy of so many bytes before it."""
        sent = predict(self.fit.link) if self.fit else 0.0
        return sent + copied * self.copy.slope.value

    def interval(self, copied: int, predict: Callable[[Link], float]) -> tuple[float, float]:
        """Return the least and the most that `seconds` can be within the fit's intervals."""
        low, high = self.fit.interval(predict) if self.fit else (0.0, 0.0)
        slope = self.copy.slope
        return low + copied * slope.low, high + copied * slope.high


_links: dict[tuple[int, torch.dtype, str], JobLink] = {}
_messages: dict[int, list[Point]] = {}


def measured_link(comm: MPI.Intracomm, dtype: torch.dtype, op: str) -> JobLink:
    """Measure once a job; later calls have the same answer. All ranks must call it.

    Args:
        comm: The ranks.
        dtype: The format that is reduced.
        op: How.
    """
    key = (comm.handle, dtype, op)
    if key not in _links:
        _links[key] = _measure(comm, dtype, op)
    return _links[key]


def _measure(comm: MPI.Intracomm, dtype: torch.dtype, op: str) -> JobLink:
    copy = fit_line(_memory_times(comm, dtype, copy_into))
    if comm.size == 1:
        return JobLink(None, copy)
    if comm.handle not in _messages:
        _messages[comm.handle] = _message_times(comm)
    sums = _memory_times(comm, dtype, partial(reduce_into, op))
    return JobLink(fit(_messages[comm.handle], sums), copy)


def _message_times(comm: MPI.Intracomm) -> list[Point]:
    """Return bytes and one-way seconds, of the slowest pair of neighbours."""
    seconds = array("d", bytes(8 * len(MESSAGE_BYTES)))
    for pairs in rounds(comm.size, "neighbours"):
        rest(comm)
        peers = [sum(pair) - comm.rank for pair in pairs if comm.rank in pair]
        for peer in peers:
            for index, one_way in enumerate(_one_way_seconds(comm, peer)):
                seconds[index] = max(seconds[index], one_way)
    rest(comm)
    return _slowest(comm, MESSAGE_BYTES, seconds)


def _one_way_seconds(comm: MPI.Intracomm, peer: int) -> list[float]:
    times = [
        [one_way_seconds(comm, peer, comm.rank < peer, count, _TRIPS) for count in MESSAGE_BYTES]
        for _ in range(_ROUNDS)
    ]
    return [min(column) for column in zip(*times, strict=True)]


def _memory_times(
    comm: MPI.Intracomm,
    dtype: torch.dtype,
    action: Callable[[torch.Tensor, torch.Tensor], Action],
) -> list[Point]:
    """Return bytes and seconds of what all ranks do in their memory at once."""
    seconds = array("d")
    for nbytes in MEMORY_BYTES:
        one, other = (torch.ones(nbytes // dtype.itemsize, dtype=dtype) for _ in range(2))
        body = action(one, other)
        body()
        times = array("d", bytes(8 * _REPEATS))
        medians = []
        for _ in range(_ROUNDS):
            comm.Barrier()
            time_batch(body, times, 0, _REPEATS, 1.0)
            medians.append(median(times))
        seconds.append(min(medians))
    return _slowest(comm, MEMORY_BYTES, seconds)


def _slowest(comm: MPI.Intracomm, sizes: tuple[int, ...], seconds: array[float]) -> list[Point]:
    comm.Allreduce(MPI.IN_PLACE, seconds, op=MPI.MAX)
    return list(zip(sizes, seconds, strict=True))
