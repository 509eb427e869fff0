"""The store ``allreduce``: no merge device, no server; each device has all sums and optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.keys.arena import Bucket
from spbench_workers.benchmarks.kvstore.optimizers import registry
from spbench_workers.benchmarks.kvstore.store.base import SentTraffic
from spbench_workers.benchmarks.kvstore.store.pushes import Push
from spbench_workers.collectives.base import Reduction


class AllreduceStore:
    """Allreduces of buckets of keys, from the gradients' memory to that of the sums.

    Args:
        buckets: The buckets, in the order in which they are reduced.
        open_: Opens the allreduce of a bucket to its part of the sums.
        sums: Memory for the sums.
        values: Memory for the sums or, with an optimizer, for the weights.
        optimizer: The optimizer of each device; with ``none`` sums and values are the same.
    """

    pushes: Sequence[Push] = ()

    def __init__(
        self,
        buckets: Sequence[Bucket],
        open_: Callable[[Bucket], Reduction],
        sums: Float32Array,
        values: Float32Array,
        optimizer: str,
    ) -> None:
        filled = [bucket for bucket in buckets if bucket.count]
        self._reductions = [open_(bucket) for bucket in filled]
        self._updates = []
        if optimizer != "none":
            for bucket in filled:
                part = slice(bucket.first, bucket.last)
                made = registry.create_optimizer(optimizer, bucket.count)
                self._updates.append((made, values[part], sums[part]))
        self.traffic = _sent(self._reductions, [4 * bucket.count for bucket in filled])

    def round(self) -> None:
        if not self._updates:
            for reduction in self._reductions:
                reduction.run()
            return
        for reduction, update in zip(self._reductions, self._updates, strict=True):
            reduction.run()
            optimizer, value, total = update
            optimizer.update(value, total)

    def settle(self) -> None:
        pass

    def free(self) -> None:
        for reduction in self._reductions:
            reduction.free()


def _sent(reductions: Sequence[Reduction], sizes: Sequence[int]) -> SentTraffic:
    """Return the traffic that the algorithms count; where one does not, the bytes handed to it."""
    traffics = [reduction.traffic for reduction in reductions]
    counted = [
        (size, 1) if traffic is None else (traffic.bytes, traffic.messages)
        for size, traffic in zip(sizes, traffics, strict=True)
    ]
    return SentTraffic(sum(size for size, _ in counted), sum(count for _, count in counted))
