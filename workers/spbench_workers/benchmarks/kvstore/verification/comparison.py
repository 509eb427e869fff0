"""Comparison of the values on every rank with their reference, and with those of rank 0."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from mpi4py import MPI

from spbench_parallel.progress import Progress
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.kvstore import figures
from spbench_workers.benchmarks.kvstore.arrays import Float32Array, Float64Array, Gradients
from spbench_workers.benchmarks.kvstore.case import StoreCase
from spbench_workers.benchmarks.kvstore.keys.arena import Arena, compute_offsets, make_buckets
from spbench_workers.benchmarks.kvstore.keys.sharding import Slot, list_server_slots
from spbench_workers.benchmarks.kvstore.store.server_shard import AsyncServerShard, ServerShard
from spbench_workers.benchmarks.kvstore.verification.expectation import Arrivals, KeyExpectation

_BLOCK = 1 << 18
"""Elements of a reference that are broadcast at once."""

Expectations = Mapping[int, Sequence[KeyExpectation]]


@dataclass(frozen=True, slots=True)
class Errors:
    """The relative errors of devices: by measure.py's formula, and in the mean over devices."""

    error: float
    mean_relative: float


class StoreComparison:
    """One rank's part in comparing a store with its reference; all ranks must call it alike.

    The reference of a run of keys is computed by one rank and broadcast: otherwise each rank would
    make every device's gradients, and keep an optimizer's state for all keys.

    Args:
        comm: All ranks of the job.
        case: The case.
        gradients: The gradients that the ranks push.
        values: The values that this device pulled; empty on a server.
        shards: The shards that this server keeps; none on a device.

    Attributes:
        identical: The difference in bits from rank 0 so far.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        case: StoreCase,
        gradients: Gradients,
        values: Arena,
        shards: Sequence[ServerShard],
    ) -> None:
        self._comm = comm
        self._case = case
        self._values = values
        self._shards = shards
        self._serves = case.is_server(comm.rank)
        self._slots = [
            list_server_slots(case.slots, server) for server in range(case.roles.servers)
        ]
        self._bounds = compute_offsets(case.elements)
        self._runs = make_buckets(case.elements, 4 * _BLOCK)
        self._expected = self._expectations(case, gradients)
        # measure.py compares with what the sum would be if nothing had been compressed.
        uncoded = replace(case, gc_type="none")
        self._uncoded = (
            self._expectations(uncoded, gradients) if case.compressed else self._expected
        )
        self._block = np.zeros(3 * min(_BLOCK, self._bounds[-1]))
        self.identical = WorstError()

    def _expectations(self, case: StoreCase, gradients: Gradients) -> Expectations:
        """Return the references that this rank computes: the keys of its runs, by run."""
        return {
            number: [KeyExpectation(case, key, gradients) for key in run.keys]
            for number, run in enumerate(self._runs)
            if number % self._comm.size == self._comm.rank
        }

    def compare(
        self,
        draw: int,
        rounds: int,
        worst: WorstError,
        when: str,
        progress: Progress,
    ) -> Errors:
        """Compare after rounds that all pushed one draw of gradients.

        Args:
            draw: The draw.
            rounds: The number of rounds since the last comparison.
            worst: The worst difference so far, which is updated.
            when: The rounds, in words.
            progress: The progress over the runs of keys.
        """
        self.advance(draw, rounds)
        mine = magnitude = 0.0
        progress.begin(len(self._runs))
        for number in range(len(self._runs)):
            progress.advance()
            off, size = self._compare_run(number, worst, when)
            mine += off
            magnitude += size
        self._compare_bits(when)
        return _errors(self._case, self._comm.allgather(mine), magnitude)

    def advance(self, draw: int, rounds: int) -> None:
        """Advance the reference by rounds after which nothing is compared."""
        arrivals = self._arrivals()
        coded = self._uncoded is not self._expected
        for expectations in (self._expected, self._uncoded) if coded else (self._expected,):
            for expected in (key for keys in expectations.values() for key in keys):
                expected.advance(draw, rounds, arrivals)

    def _compare_run(self, number: int, worst: WorstError, when: str) -> tuple[float, float]:
        """Return the sums of this rank's errors and of the reference's sizes in a run of keys."""
        run = self._runs[number]
        known = self._known(number)
        off = size = 0.0
        for first in range(run.first, run.last, _BLOCK):
            last = min(first + _BLOCK, run.last)
            block = self._block[: 3 * (last - first)].reshape(3, -1)
            if known is not None:
                np.copyto(block, known[:, first - run.first : last - run.first])
            self._comm.Bcast(block, number % self._comm.size)
            size += float(np.abs(block[2]).sum())
            off += self._compare_block(block, first, worst, when)
        return off, size

    def _known(self, number: int) -> Float64Array | None:
        """Return a run's weights, their bounds and the uncoded weights, where this rank has them.

        The rows are in this order; None on ranks that do not compute this run.
        """
        if number not in self._expected:
            return None
        rows = [key.weight_and_bound() for key in self._expected[number]]
        uncoded = [key.weight_and_bound()[:1] for key in self._uncoded[number]]
        pairs = zip(rows, uncoded, strict=True)
        return np.concatenate([np.concatenate(pair) for pair in pairs], axis=1)

    def _compare_block(
        self, block: Float64Array, first: int, worst: WorstError, when: str
    ) -> float:
        """Compare this rank's values with a block of `_known`; return the sum of the errors."""
        off = 0.0
        for begin, array in self._held():
            low = max(first, begin)
            high = min(first + block.shape[1], begin + len(array))
            if low < high:
                weight, bound, uncoded = block[:, low - first : high - first]
                where = partial(self._where, low, when)
                held = array[low - begin : high - begin]
                worst.compare_arrays(held, weight, bound, where)
                off += figures.distance([held], [uncoded])
        return off

    def _where(self, first: int, when: str, index: int) -> str:
        """Return in words the element ``index`` after ``first`` of all keys' elements, and when."""
        key = bisect_right(self._bounds, first + index) - 1
        return f"key {key}, element {first + index - self._bounds[key]}, after {when}"

    def _held(self) -> list[tuple[int, Float32Array]]:
        """Return the arrays of this rank, each with the place of its first element."""
        if not self._serves:
            return [(0, self._values.flat)]
        slots = ((shard.slot, shard.value) for shard in self._shards)
        return [(self._bounds[slot.key] + slot.first, value) for slot, value in slots]

    def _arrivals(self) -> Arrivals:
        """Broadcast the order in which pushes came to each shard since the last call."""
        if not self._case.store.asynchronous:
            return {}
        told: dict[Slot, Sequence[int]] = {}
        for server, rank in enumerate(self._case.roles.server_ranks):
            mine = [shard.arrivals for shard in self._shards if isinstance(shard, AsyncServerShard)]
            orders = self._comm.bcast(mine if rank == self._comm.rank else None, rank)
            told |= dict(zip(self._slots[server], orders, strict=True))
        for shard in self._shards:
            if isinstance(shard, AsyncServerShard):
                shard.clear_arrivals()
        return told

    def _compare_bits(self, when: str) -> None:
        """Compare bit by bit with rank 0: a server its shards, a device all values."""
        digests = self._comm.allgather(self._digests())
        rank = self._comm.rank
        others = [part for part, mine in digests[rank].items() if digests[0][part] != mine]
        if others:
            self.identical.add(float(len(others)), 0.0, f"other bits than rank 0's after {when}")

    def _digests(self) -> dict[int, bytes]:
        """Return a digest of the values of each server's shards; without servers one of all."""
        case = self._case
        if self._serves:
            server = self._comm.rank - case.roles.server_ranks.start
            return {server: _digest([shard.value for shard in self._shards])}
        if not case.slots:
            return {0: _digest([self._values.flat])}
        return {
            server: _digest(
                [self._values.views[slot.key][slot.first : slot.last] for slot in slots]
            )
            for server, slots in enumerate(self._slots)
        }


def _digest(arrays: Sequence[Float32Array]) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for array in arrays:
        made.update(array.data)
    return made.digest()


def _errors(case: StoreCase, distances: Sequence[float], magnitude: float) -> Errors:
    """Return the errors over all ranks' distances; measure.py's is that of the worst worker."""
    roles = case.roles
    by_worker = [
        [distances[rank] for rank in roles.list_worker_ranks(worker)]
        for worker in range(roles.workers)
    ]
    devices = [distances[rank] for rank in roles.device_ranks]
    return Errors(
        max(figures.error(own, magnitude) for own in by_worker),
        figures.mean_relative_error(devices, magnitude),
    )
