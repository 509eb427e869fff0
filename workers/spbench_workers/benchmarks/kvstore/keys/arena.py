"""Arrays of all keys in one block of memory, and buckets of neighbouring keys.

A bucket is adjacent in memory, so that it can be sent as one message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from spbench_parallel.errors import catch_out_of_memory
from spbench_workers.benchmarks.kvstore.arrays import Float32Array


@dataclass(frozen=True, slots=True)
class Bucket:
    """Elements ``first`` to before ``last`` of the arena of all keys, in key order.

    Attributes:
        first: The first element.
        last: One past the last element.
        keys: The keys with elements in the bucket, and empty keys between them.
    """

    first: int
    last: int
    keys: range

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.last - self.first


def compute_offsets(elements: Sequence[int]) -> list[int]:
    """Return the first element of each key in the arena, and last the number of all."""
    return [0, *accumulate(elements)]


def make_buckets(
    elements: Sequence[int],
    bucket_bytes: int | None,
    *,
    backward: bool = False,
    split: bool = False,
    itemsize: int = 4,
) -> list[Bucket]:
    """Return the buckets of the whole arena in the order of sending.

    A bucket takes keys in order until the next one does not fit. A key larger than a bucket gets
    its own bucket.

    Args:
        elements: Elements of each key, in key order.
        bucket_bytes: The most bytes of a bucket; 0 for a bucket per key, None for a single bucket.
        backward: Whether the order is that of a backward pass, from the last key to the first.
        split: Whether a bucket may contain a part of a key.
        itemsize: Bytes of an element.

    Raises:
        ValueError: Keys may be split, and a bucket is smaller than one element.
    """
    if not elements:
        return []
    starts = compute_offsets(elements)
    if bucket_bytes is None:
        return [Bucket(0, starts[-1], range(len(elements)))]
    max_elements = bucket_bytes // itemsize
    if split:
        if max_elements < 1:
            raise ValueError(f"buckets of {bucket_bytes} bytes do not hold one element")
        return _fill_buckets(starts, max_elements, backward)
    return [
        Bucket(starts[keys.start], starts[keys.stop], keys)
        for keys in _group_keys(
            elements, max_elements, split_all=bucket_bytes == 0, backward=backward
        )
    ]


def _group_keys(
    elements: Sequence[int], max_elements: int, *, split_all: bool, backward: bool
) -> list[range]:
    """Return runs of whole keys; runs of several keys have at most ``max_elements``."""
    ordered_keys = range(len(elements))[:: -1 if backward else 1]
    groups: list[list[int]] = []
    group_elements = 0
    for key in ordered_keys:
        if not groups or split_all or group_elements + elements[key] > max_elements:
            groups.append([])
            group_elements = 0
        groups[-1].append(key)
        group_elements += elements[key]
    return [range(min(group), max(group) + 1) for group in groups]


def _fill_buckets(starts: Sequence[int], max_elements: int, backward: bool) -> list[Bucket]:
    """Return buckets of ``max_elements`` elements; the last one may be smaller."""
    element_count = starts[-1]
    firsts = range(0, element_count, max_elements)
    spans = [(first, min(first + max_elements, element_count)) for first in firsts]
    if backward:
        spans = [(element_count - last, element_count - first) for first, last in spans]
    return [Bucket(first, last, _keys_within(starts, first, last)) for first, last in spans]


def _keys_within(starts: Sequence[int], first: int, last: int) -> range:
    begin = bisect_right(starts, first) - 1
    return range(begin, bisect_left(starts, last, begin + 1))


class Arena:
    """Float32 arrays of all keys on the host in key order, initially zeros.

    Args:
        elements: Elements of each key.
        pinned: Whether the memory is pinned, for copies from and to a GPU.
        memory: The memory to use, zeros; its own by default.

    Attributes:
        tensor: All arrays, on one axis.
        flat: The same memory as a numpy array.
        views: The array of each key: slices of ``flat``.
        bounds: The first element of each key, and at the end the number of all elements.
    """

    def __init__(
        self, elements: Sequence[int], *, pinned: bool = False, memory: Float32Array | None = None
    ) -> None:
        self.bounds = compute_offsets(elements)
        if memory is None:
            with catch_out_of_memory(4 * self.bounds[-1]):
                self.tensor = torch.zeros(self.bounds[-1], dtype=torch.float32, pin_memory=pinned)
        else:
            self.tensor = torch.from_numpy(memory)
        self.flat: Float32Array = self.tensor.numpy()
        self.views = [self.flat[first:last] for first, last in pairwise(self.bounds)]


def allocate_key_views(elements: Sequence[int], keys: Sequence[int]) -> list[Float32Array]:
    """Return an array for each key in ``keys``, and an empty one for each other key."""
    key_set = set(keys)
    return Arena([count if key in key_set else 0 for key, count in enumerate(elements)]).views
