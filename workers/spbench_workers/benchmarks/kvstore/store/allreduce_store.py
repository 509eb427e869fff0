"""Store ``allreduce`` without merge devices and servers: each device has all sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from mpi4py import MPI

from spbench_core.catalog.typed_params import require_value
from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.case import StoreCase
from spbench_workers.benchmarks.kvstore.keys.arena import Bucket, make_buckets
from spbench_workers.benchmarks.kvstore.optimizers import registry
from spbench_workers.benchmarks.kvstore.params import PushPullParams
from spbench_workers.benchmarks.kvstore.store.base import Push, SentTraffic
from spbench_workers.benchmarks.kvstore.store.memory import StoreMemory
from spbench_workers.benchmarks.kvstore.store.shared_sum import SharedWindow
from spbench_workers.collectives.base import Collective
from spbench_workers.collectives.opening import open_allreduce


class AllreduceStore:
    """Allreduces of buckets of keys, from the gradients' memory to that of the sums.

    Args:
        buckets: The buckets in the order of their allreduces.
        open_: Opens the allreduce of a bucket into its part of the sums.
        sums: Memory for the sums.
        values: Memory for the sums or, with an optimizer, for the weights.
        optimizer: The optimizer of each device; with ``none`` sums and values are the same.
    """

    pushes: Sequence[Push] = ()

    def __init__(
        self,
        buckets: Sequence[Bucket],
        open_: Callable[[Bucket], Collective],
        sums: Float32Array,
        values: Float32Array,
        optimizer: str,
    ) -> None:
        nonempty = [bucket for bucket in buckets if bucket.count]
        self._allreduces = [open_(bucket) for bucket in nonempty]
        self._updates = []
        if optimizer != "none":
            for bucket in nonempty:
                part = slice(bucket.first, bucket.last)
                bucket_optimizer = registry.create_optimizer(optimizer, bucket.count)
                self._updates.append((bucket_optimizer, values[part], sums[part]))
        self.traffic = _sum_traffic(self._allreduces, [4 * bucket.count for bucket in nonempty])

    def round(self) -> None:
        if not self._updates:
            for allreduce in self._allreduces:
                allreduce.run()
            return
        for allreduce, update in zip(self._allreduces, self._updates, strict=True):
            allreduce.run()
            bucket_optimizer, value, total = update
            bucket_optimizer.update(value, total)

    def settle(self) -> None:
        pass

    def free(self) -> None:
        for allreduce in self._allreduces:
            allreduce.free()


def _sum_traffic(allreduces: Sequence[Collective], bucket_bytes: Sequence[int]) -> SentTraffic:
    """Return the traffic counted by the algorithms, or the bytes passed to libraries."""
    traffics = [allreduce.traffic for allreduce in allreduces]
    bytes_and_messages = [
        (nbytes, 1) if traffic is None else (traffic.bytes, traffic.messages)
        for nbytes, traffic in zip(bucket_bytes, traffics, strict=True)
    ]
    return SentTraffic(
        sum(nbytes for nbytes, _ in bytes_and_messages),
        sum(messages for _, messages in bytes_and_messages),
    )


def open_allreduce_store(
    params: PushPullParams,
    case: StoreCase,
    comm: MPI.Intracomm,
    memory: StoreMemory,
    window: SharedWindow | None,
) -> AllreduceStore:
    """Return a device's part of the store ``allreduce``.

    Args:
        params: The case's parameters.
        case: The case of these parameters.
        comm: The devices.
        memory: This device's memory.
        window: The shared memory of all devices if they sum in it, or None.

    Raises:
        CannotRunError: The ranks cannot run the algorithm.
    """
    values = memory.values.flat
    open_bucket: Callable[[Bucket], Collective]
    if window is not None:
        sums = window.sums[comm.rank]
        open_bucket = partial(_open_shared, window)
    else:
        # With an optimizer the values are weights, and the sums need separate memory.
        sums = values if case.optimizer == "none" else np.zeros_like(values)
        open_bucket = _choose_allreduce(params, comm, memory, sums)
    return AllreduceStore(_make_buckets(params, case), open_bucket, sums, values, case.optimizer)


def _choose_allreduce(
    params: PushPullParams, comm: MPI.Intracomm, memory: StoreMemory, sums: Float32Array
) -> Callable[[Bucket], Collective]:
    """Return a function that opens the allreduce of a bucket by messages."""
    algorithm = require_value(params.algorithm)
    if algorithm == "nccl":
        # NCCL reduces on the GPU; optimizers run on the host and cannot be combined with it.
        return partial(
            _open_messages, comm, algorithm, memory.device_gradients, memory.device_values
        )
    target = torch.from_numpy(sums)
    return partial(_open_messages, comm, algorithm, memory.gradients.tensor, target)


def _open_shared(window: SharedWindow, bucket: Bucket) -> Collective:
    return window.open_sum(bucket.first, bucket.last)


def _open_messages(
    comm: MPI.Intracomm,
    algorithm: str,
    source: torch.Tensor,
    target: torch.Tensor,
    bucket: Bucket,
) -> Collective:
    part = slice(bucket.first, bucket.last)
    return open_allreduce(comm, algorithm, source[part], target[part])


def _make_buckets(params: PushPullParams, case: StoreCase) -> list[Bucket]:
    bytes_by_kind: dict[str | None, int | None] = {"tensor": 0, "flat": None}
    bucket_bytes = bytes_by_kind.get(params.bucket, params.bucket_bytes)
    return make_buckets(
        case.elements,
        bucket_bytes,
        backward=params.priority == "descending",
        split=params.bucket == "sliced",
    )
