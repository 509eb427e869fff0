"""Measured times for the model: messages, reductions and copies by size, and the job's link."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from mpi4py import MPI

from spbench_parallel.groups import sleep_at_barrier
from spbench_workers.benchmarks.allreduce.model.cost_model import LinkCosts
from spbench_workers.benchmarks.allreduce.model.link_fit import (
    Line,
    LinkFit,
    Point,
    fit_line,
    fit_link,
)
from spbench_workers.collectives.arithmetic import Action, copy_into, reduce_into
from spbench_workers.pingpong.pair import Peer, one_way_seconds
from spbench_workers.pingpong.schedule import pair_rounds
from spbench_workers.timing import time_batch

MESSAGE_BYTES = (8, 128, 2 << 10, 32 << 10, 256 << 10, 1 << 20)
MEMORY_BYTES = (4 << 10, 32 << 10, 256 << 10, 1 << 20)
TRIPS = 20
_REPEATS = 15
_ROUNDS = 3
"""Repetitions of the measurement; the least median counts, as the least disturbed."""

BufferBytes = tuple[int, int]
"""Bytes of a rank's source, and of its result."""
_NOWHERE: BufferBytes = (0, 0)


@dataclass(frozen=True, slots=True)
class StagingCopies:
    """Copies between a GPU and pinned memory of the host.

    Attributes:
        to_host: Copies of the source.
        to_device: Copies of the result.
    """

    to_host: Line
    to_device: Line

    def predict_seconds(self, buffer_bytes: BufferBytes) -> float:
        """Return the seconds of both copies; no bytes take no time."""
        return sum(
            line.start.value + nbytes * line.slope.value
            for line, nbytes in self._used(buffer_bytes)
        )

    def predict_interval(self, buffer_bytes: BufferBytes) -> tuple[float, float]:
        """Return the least and the most that `seconds` can be within the lines' intervals."""
        used = self._used(buffer_bytes)
        return (
            sum(line.start.low + nbytes * line.slope.low for line, nbytes in used),
            sum(line.start.high + nbytes * line.slope.high for line, nbytes in used),
        )

    def _used(self, ends: BufferBytes) -> list[tuple[Line, int]]:
        both = zip((self.to_host, self.to_device), ends, strict=True)
        return [(line, nbytes) for line, nbytes in both if nbytes]


@dataclass(frozen=True, slots=True)
class JobLink:
    """The measured link of a job, the same on all ranks.

    Attributes:
        fit: Messages between neighbours in the order of ranks, and reductions; None for one rank.
        copy: A copy within a rank's memory.
        staging: Copies from the GPU and back, where a reduction is staged; else None.
        max_bytes: Bytes of the largest message.
    """

    fit: LinkFit | None
    copy: Line
    staging: StagingCopies | None = None
    max_bytes: int = MESSAGE_BYTES[-1]

    def predict_seconds(
        self,
        copied: int,
        predict: Callable[[LinkCosts], float],
        buffer_bytes: BufferBytes = _NOWHERE,
    ) -> float:
        """Return the predicted seconds, with a copy of so many bytes before.

        Args:
            copied: The bytes.
            predict: The prediction from the link's costs.
            buffer_bytes: The bytes copied from the GPU and back, if the link has copies.
        """
        sent = predict(self.fit.link) if self.fit else 0.0
        around = self.staging.predict_seconds(buffer_bytes) if self.staging else 0.0
        return sent + copied * self.copy.slope.value + around

    def predict_interval(
        self,
        copied: int,
        predict: Callable[[LinkCosts], float],
        buffer_bytes: BufferBytes = _NOWHERE,
    ) -> tuple[float, float]:
        """Return the least and the most that `seconds` can be within the fit's intervals."""
        low, high = self.fit.interval(predict) if self.fit else (0.0, 0.0)
        least, most = self.staging.predict_interval(buffer_bytes) if self.staging else (0.0, 0.0)
        slope = self.copy.slope
        return low + copied * slope.low + least, high + copied * slope.high + most


_messages: dict[int, list[Point]] = {}


def measure_host_link(comm: MPI.Intracomm, dtype: torch.dtype, op: str) -> JobLink:
    """Measure messages, reductions and copies in the memory of the hosts.

    All ranks must call it. Messages are measured once a job.

    Args:
        comm: The ranks.
        dtype: The format that is reduced.
        op: The operation.
    """
    copy = fit_line(_memory_times(comm, dtype, copy_into))
    if comm.size == 1:
        return JobLink(None, copy)
    if comm.handle not in _messages:
        _messages[comm.handle] = measure_messages(comm, MESSAGE_BYTES, partial(_one_way, comm))
    sums = _memory_times(comm, dtype, partial(reduce_into, op))
    return JobLink(fit_link(_messages[comm.handle], sums), copy)


def _one_way(comm: MPI.Intracomm, peer: int, count: int) -> float:
    return one_way_seconds(Peer(comm, peer, leads=comm.rank < peer), count, TRIPS)


def measure_messages(
    comm: MPI.Intracomm, sizes: Sequence[int], one_way: Callable[[int, int], float]
) -> list[Point]:
    """Return sizes and one-way seconds, of the slowest pair of neighbours.

    Args:
        comm: The ranks; all must call it.
        sizes: The bytes.
        one_way: Returns the one-way seconds to a peer, which calls it too, for a number of bytes.
    """
    seconds = array("d", bytes(8 * len(sizes)))
    for pairs in pair_rounds(comm.size, "neighbours"):
        sleep_at_barrier(comm)
        peers = [sum(pair) - comm.rank for pair in pairs if comm.rank in pair]
        for peer in peers:
            times = [[one_way(peer, count) for count in sizes] for _ in range(_ROUNDS)]
            for index, column in enumerate(zip(*times, strict=True)):
                seconds[index] = max(seconds[index], min(column))
    sleep_at_barrier(comm)
    return _slowest(comm, sizes, seconds)


def _memory_times(
    comm: MPI.Intracomm,
    dtype: torch.dtype,
    action: Callable[[torch.Tensor, torch.Tensor], Action],
) -> list[Point]:
    """Return sizes and seconds of an action that all ranks do in their memory at once."""

    def body_of(nbytes: int) -> Action:
        one, other = (torch.ones(nbytes // dtype.itemsize, dtype=dtype) for _ in range(2))
        return action(one, other)

    return measure_together(comm, MEMORY_BYTES, body_of)


def measure_together(
    comm: MPI.Intracomm, sizes: Sequence[int], body_of: Callable[[int], Action]
) -> list[Point]:
    """Return sizes and seconds of an action that all ranks do at once, on the slowest of them.

    Args:
        comm: The ranks; all must call it.
        sizes: The bytes.
        body_of: Returns the action to time, for a number of bytes.
    """
    seconds = array("d")
    for nbytes in sizes:
        body = body_of(nbytes)
        body()
        times = array("d", bytes(8 * _REPEATS))
        medians = []
        for _ in range(_ROUNDS):
            comm.Barrier()
            time_batch(body, times, 0, _REPEATS, 1.0)
            medians.append(median(times))
        seconds.append(min(medians))
    return _slowest(comm, sizes, seconds)


def _slowest(comm: MPI.Intracomm, sizes: Sequence[int], seconds: array[float]) -> list[Point]:
    comm.Allreduce(MPI.IN_PLACE, seconds, op=MPI.MAX)
    return list(zip(sizes, seconds, strict=True))
