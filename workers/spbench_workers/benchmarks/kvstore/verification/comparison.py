"""Comparison of the values on every rank with their reference and with rank 0."""

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
from spbench_workers.benchmarks.kvstore.keys.sharding import TaggedShard, list_server_shards
from spbench_workers.benchmarks.kvstore.store.server_shard import AsyncServerShard, ServerShard
from spbench_workers.benchmarks.kvstore.verification.expectation import Arrivals, KeyExpectation

_BLOCK = 1 << 18
"""Elements of a reference that are broadcast together."""

Expectations = Mapping[int, Sequence[KeyExpectation]]


@dataclass(frozen=True, slots=True)
class Errors:
    """The relative errors of devices by measure.py's formula, and their mean."""

    error: float
    mean_relative: float


class StoreComparison:
    """One rank's part in comparing a store; all ranks must make the same calls.

    One rank computes and broadcasts the reference of a run of keys. Otherwise each rank would have
    to make every device's gradients and keep an optimizer's state for all keys.

    Args:
        comm: All ranks of the job.
        case: The case.
        gradients: The gradients that the ranks push.
        values: The pulled values of this device; empty on a server.
        shards: The shards of this server; empty on a device.

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
        self._tagged_shards = [
            list_server_shards(case.tagged_shards, server) for server in range(case.roles.servers)
        ]
        self._bounds = compute_offsets(case.elements)
        self._runs = make_buckets(case.elements, 4 * _BLOCK)
        self._expected = self._make_expectations(case, gradients)
        # measure.py compares with the sum of uncompressed gradients.
        uncoded = replace(case, gc_type="none")
        self._uncoded = (
            self._make_expectations(uncoded, gradients) if case.compressed else self._expected
        )
        self._block = np.zeros(3 * min(_BLOCK, self._bounds[-1]))
        self.identical = WorstError()

    def _make_expectations(self, case: StoreCase, gradients: Gradients) -> Expectations:
        """Return the references that this rank computes, by run of keys."""
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
        phase: str,
        progress: Progress,
    ) -> Errors:
        """Compare after rounds that all pushed the same draw of gradients.

        Args:
            draw: The draw.
            rounds: The number of rounds since the last comparison.
            worst: The worst difference so far, which is updated.
            phase: The rounds, for messages.
            progress: The progress over the runs of keys.
        """
        self.advance(draw, rounds)
        own_distance = 0.0
        magnitude = 0.0
        progress.begin(len(self._runs))
        for run_number in range(len(self._runs)):
            progress.advance()
            distance, run_magnitude = self._compare_run(run_number, worst, phase)
            own_distance += distance
            magnitude += run_magnitude
        self._compare_bits(phase)
        return _compute_errors(self._case, self._comm.allgather(own_distance), magnitude)

    def advance(self, draw: int, rounds: int) -> None:
        """Advance the reference by rounds without comparing."""
        arrivals = self._share_arrivals()
        is_compressed = self._uncoded is not self._expected
        for expectations in (self._expected, self._uncoded) if is_compressed else (self._expected,):
            for key_expectations in expectations.values():
                for expectation in key_expectations:
                    expectation.advance(draw, rounds, arrivals)

    def _compare_run(self, run_number: int, worst: WorstError, phase: str) -> tuple[float, float]:
        """Return the sums of errors and of the reference's magnitudes in a run."""
        run = self._runs[run_number]
        reference = self._stack_reference(run_number)
        distance = magnitude = 0.0
        for first in range(run.first, run.last, _BLOCK):
            last = min(first + _BLOCK, run.last)
            block = self._block[: 3 * (last - first)].reshape(3, -1)
            if reference is not None:
                np.copyto(block, reference[:, first - run.first : last - run.first])
            self._comm.Bcast(block, run_number % self._comm.size)
            magnitude += float(np.abs(block[2]).sum())
            distance += self._compare_block(block, first, worst, phase)
        return distance, magnitude

    def _stack_reference(self, run_number: int) -> Float64Array | None:
        """Return rows of a run's weights, their bounds and the uncompressed weights.

        Return None on ranks that do not compute this run.
        """
        if run_number not in self._expected:
            return None
        weights_and_bounds = [key.weight_and_bound() for key in self._expected[run_number]]
        uncoded_weights = [key.weight_and_bound()[:1] for key in self._uncoded[run_number]]
        pairs = zip(weights_and_bounds, uncoded_weights, strict=True)
        return np.concatenate([np.concatenate(pair) for pair in pairs], axis=1)

    def _compare_block(
        self, block: Float64Array, first: int, worst: WorstError, phase: str
    ) -> float:
        """Compare this rank's values with a block of the reference; return the error sum."""
        distance = 0.0
        for array_first, own_values in self._list_values():
            low = max(first, array_first)
            high = min(first + block.shape[1], array_first + len(own_values))
            if low < high:
                weight, bound, uncoded = block[:, low - first : high - first]
                describe = partial(self._describe_element, low, phase)
                values = own_values[low - array_first : high - array_first]
                worst.compare_arrays(values, weight, bound, describe)
                distance += figures.compute_distance([values], [uncoded])
        return distance

    def _describe_element(self, first: int, phase: str, index: int) -> str:
        """Describe element ``first + index`` of all keys' elements, and the phase."""
        key = bisect_right(self._bounds, first + index) - 1
        return f"key {key}, element {first + index - self._bounds[key]}, after {phase}"

    def _list_values(self) -> list[tuple[int, Float32Array]]:
        """Return the arrays of this rank, each with the position of its first element."""
        if not self._serves:
            return [(0, self._values.flat)]
        shards_and_values = ((shard.tagged_shard, shard.value) for shard in self._shards)
        return [
            (self._bounds[shard.key] + shard.first, value) for shard, value in shards_and_values
        ]

    def _share_arrivals(self) -> Arrivals:
        """Broadcast the order of arrival of pushes at each shard since the last call."""
        if not self._case.store.asynchronous:
            return {}
        arrivals: dict[TaggedShard, Sequence[int]] = {}
        for server, rank in enumerate(self._case.roles.server_ranks):
            own_orders = [
                shard.arrivals for shard in self._shards if isinstance(shard, AsyncServerShard)
            ]
            orders = self._comm.bcast(own_orders if rank == self._comm.rank else None, rank)
            arrivals |= dict(zip(self._tagged_shards[server], orders, strict=True))
        for shard in self._shards:
            if isinstance(shard, AsyncServerShard):
                shard.clear_arrivals()
        return arrivals

    def _compare_bits(self, phase: str) -> None:
        """Compare the bits with rank 0: on a server its shards, on a device all values."""
        digests = self._comm.allgather(self._digests())
        rank = self._comm.rank
        different_parts = [
            part for part, digest in digests[rank].items() if digests[0][part] != digest
        ]
        if different_parts:
            self.identical.add(
                float(len(different_parts)), 0.0, f"other bits than rank 0's after {phase}"
            )

    def _digests(self) -> dict[int, bytes]:
        """Return digests of the values by server, or one digest without servers."""
        case = self._case
        if self._serves:
            server = self._comm.rank - case.roles.server_ranks.start
            return {server: _digest([shard.value for shard in self._shards])}
        if not case.tagged_shards:
            return {0: _digest([self._values.flat])}
        return {
            server: _digest(
                [self._values.views[shard.key][shard.first : shard.last] for shard in tagged_shards]
            )
            for server, tagged_shards in enumerate(self._tagged_shards)
        }


def _digest(arrays: Sequence[Float32Array]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.data)
    return digest.digest()


def _compute_errors(case: StoreCase, distances: Sequence[float], magnitude: float) -> Errors:
    """Return the errors from all distances; measure.py's is that of the worst worker."""
    roles = case.roles
    distances_by_worker = [
        [distances[rank] for rank in roles.list_worker_ranks(worker)]
        for worker in range(roles.workers)
    ]
    device_distances = [distances[rank] for rank in roles.device_ranks]
    return Errors(
        max(
            figures.compute_error(worker_distances, magnitude)
            for worker_distances in distances_by_worker
        ),
        figures.compute_mean_relative_error(device_distances, magnitude),
    )
