"""Measured times of messages, reductions and copies, and the job's link from them."""

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
from spbench_workers.pingpong.pair import Peer, measure_one_way
from spbench_workers.pingpong.schedule import pair_rounds
from spbench_workers.timing import time_batch

MESSAGE_BYTES = (8, 128, 2 << 10, 32 << 10, 256 << 10, 1 << 20)
MEMORY_BYTES = (4 << 10, 32 << 10, 256 << 10, 1 << 20)
TRIPS = 20
_REPEATS = 15
_ROUNDS = 3
"""Repetitions of the measurement; the least median counts, because it is the least disturbed."""

BufferBytes = tuple[int, int]
"""Bytes of a rank's source and of its result."""
_NO_BYTES: BufferBytes = (0, 0)


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
        """Return the seconds of both copies; an empty copy takes no time."""
        return sum(
            line.start.value + nbytes * line.slope.value
            for line, nbytes in self._pair_lines(buffer_bytes)
        )

    def predict_interval(self, buffer_bytes: BufferBytes) -> tuple[float, float]:
        """Return the bounds of `predict_seconds` within the intervals of the lines."""
        lines_and_bytes = self._pair_lines(buffer_bytes)
        return (
            sum(line.start.low + nbytes * line.slope.low for line, nbytes in lines_and_bytes),
            sum(line.start.high + nbytes * line.slope.high for line, nbytes in lines_and_bytes),
        )

    def _pair_lines(self, buffer_bytes: BufferBytes) -> list[tuple[Line, int]]:
        pairs = zip((self.to_host, self.to_device), buffer_bytes, strict=True)
        return [(line, nbytes) for line, nbytes in pairs if nbytes]


@dataclass(frozen=True, slots=True)
class JobLink:
    """The measured link of a job, the same on all ranks.

    Attributes:
        fit: Messages between neighbouring ranks, and reductions; None for one rank.
        copy: A copy within a rank's memory.
        staging: Copies from the GPU and back; None if reductions are not staged.
        max_bytes: Bytes of the largest message.
    """

    fit: LinkFit | None
    copy: Line
    staging: StagingCopies | None = None
    max_bytes: int = MESSAGE_BYTES[-1]

    def predict_seconds(
        self,
        copied_bytes: int,
        predict: Callable[[LinkCosts], float],
        buffer_bytes: BufferBytes = _NO_BYTES,
    ) -> float:
        """Return the predicted seconds, including a copy before the collective.

        Args:
            copied_bytes: Bytes of the copy.
            predict: The prediction from the link's costs.
            buffer_bytes: The bytes copied from the GPU and back, if the link has copies.
        """
        message_seconds = predict(self.fit.link) if self.fit else 0.0
        copy_seconds = self.staging.predict_seconds(buffer_bytes) if self.staging else 0.0
        return message_seconds + copied_bytes * self.copy.slope.value + copy_seconds

    def predict_interval(
        self,
        copied_bytes: int,
        predict: Callable[[LinkCosts], float],
        buffer_bytes: BufferBytes = _NO_BYTES,
    ) -> tuple[float, float]:
        """Return the bounds of `predict_seconds` within the intervals of the fit."""
        low_seconds, high_seconds = self.fit.interval(predict) if self.fit else (0.0, 0.0)
        staging_low = 0.0
        staging_high = 0.0
        if self.staging:
            staging_low, staging_high = self.staging.predict_interval(buffer_bytes)
        slope = self.copy.slope
        return (
            low_seconds + copied_bytes * slope.low + staging_low,
            high_seconds + copied_bytes * slope.high + staging_high,
        )


_messages: dict[int, list[Point]] = {}


def measure_host_link(comm: MPI.Intracomm, dtype: torch.dtype, op: str) -> JobLink:
    """Measure messages, reductions and copies in the memory of the hosts.

    All ranks must call it. Messages are measured once per job.

    Args:
        comm: The ranks.
        dtype: The format that is reduced.
        op: The operation.
    """
    copy_line = fit_line(_measure_memory(comm, dtype, copy_into))
    if comm.size == 1:
        return JobLink(None, copy_line)
    if comm.handle not in _messages:
        _messages[comm.handle] = measure_messages(
            comm, MESSAGE_BYTES, partial(_measure_one_way, comm)
        )
    sum_points = _measure_memory(comm, dtype, partial(reduce_into, op))
    return JobLink(fit_link(_messages[comm.handle], sum_points), copy_line)


def _measure_one_way(comm: MPI.Intracomm, peer: int, count: int) -> float:
    return measure_one_way(Peer(comm, peer, leads=comm.rank < peer), count, TRIPS)


def measure_messages(
    comm: MPI.Intracomm, sizes: Sequence[int], one_way: Callable[[int, int], float]
) -> list[Point]:
    """Return sizes and one-way seconds of the slowest pair of neighbours.

    Args:
        comm: The ranks; all must call it.
        sizes: The bytes.
        one_way: Returns the one-way seconds to a peer, which also calls it, by number of bytes.
    """
    slowest_seconds = array("d", bytes(8 * len(sizes)))
    for pairs in pair_rounds(comm.size, "neighbours"):
        sleep_at_barrier(comm)
        peers = [sum(pair) - comm.rank for pair in pairs if comm.rank in pair]
        for peer in peers:
            seconds_by_round = [[one_way(peer, count) for count in sizes] for _ in range(_ROUNDS)]
            for index, size_seconds in enumerate(zip(*seconds_by_round, strict=True)):
                slowest_seconds[index] = max(slowest_seconds[index], min(size_seconds))
    sleep_at_barrier(comm)
    return _fold_slowest(comm, sizes, slowest_seconds)


def _measure_memory(
    comm: MPI.Intracomm,
    dtype: torch.dtype,
    action: Callable[[torch.Tensor, torch.Tensor], Action],
) -> list[Point]:
    """Return sizes and seconds of simultaneous actions of all ranks in memory."""

    def make_action(nbytes: int) -> Action:
        count = nbytes // dtype.itemsize
        return action(torch.ones(count, dtype=dtype), torch.ones(count, dtype=dtype))

    return measure_together(comm, MEMORY_BYTES, make_action)


def measure_together(
    comm: MPI.Intracomm, sizes: Sequence[int], make_action: Callable[[int], Action]
) -> list[Point]:
    """Return sizes and the slowest rank's seconds of simultaneous actions.

    Args:
        comm: The ranks; all must call it.
        sizes: The bytes.
        make_action: Returns the action to time, for a number of bytes.
    """
    best_seconds = array("d")
    for nbytes in sizes:
        body = make_action(nbytes)
        body()
        call_seconds = array("d", bytes(8 * _REPEATS))
        median_seconds = []
        for _ in range(_ROUNDS):
            comm.Barrier()
            time_batch(body, call_seconds, 0, _REPEATS, 1.0)
            median_seconds.append(median(call_seconds))
        best_seconds.append(min(median_seconds))
    return _fold_slowest(comm, sizes, best_seconds)


def _fold_slowest(comm: MPI.Intracomm, sizes: Sequence[int], seconds: array[float]) -> list[Point]:
    comm.Allreduce(MPI.IN_PLACE, seconds, op=MPI.MAX)
    return list(zip(sizes, seconds, strict=True))
