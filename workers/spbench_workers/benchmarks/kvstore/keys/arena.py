"""Arrays of many keys in one block of memory, so that neighbours can be sent as one message."""

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
    """A bucket: elements ``first`` up to ``last`` of the arena of all keys, in key order.

    Attributes:
        first: The first element.
        last: One beyond the last.
        keys: The keys that have elements in it, and keys without elements within it.
    """

    first: int
    last: int
    keys: range

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.last - self.first


def compute_offsets(elements: Sequence[int]) -> list[int]:
    """Return the first element of each key in the arena, and at the end the number of all."""
    return [0, *accumulate(elements)]


def make_buckets(
    elements: Sequence[int],
    bucket_bytes: int | None,
    *,
    backward: bool = False,
    split: bool = False,
    itemsize: int = 4,
) -> list[Bucket]:
    """Return the buckets in the order in which they are sent; together they are the whole arena.

    Keys are taken in order until the next one would be too much; a key that is larger than a
    bucket is one by itself.

    Args:
        elements: Elements of each key, in key order.
        bucket_bytes: The most bytes of a bucket; 0 for a bucket per key, None for one of all keys.
        backward: From the last key to the first, the order in which a backward pass makes them.
        split: Whether a bucket may hold a part of a key; else keys stay whole.
        itemsize: Bytes of an element.

    Raises:
        ValueError: A key is to be split into buckets that do not hold one element.
    """
    if not elements:
        return []
    starts = compute_offsets(elements)
    if bucket_bytes is None:
        return [Bucket(0, starts[-1], range(len(elements)))]
    most = bucket_bytes // itemsize
    if split:
        if most < 1:
            raise ValueError(f"buckets of {bucket_bytes} bytes do not hold one element")
        return _filled(starts, most, backward)
    return [
        Bucket(starts[keys.start], starts[keys.stop], keys)
        for keys in _grouped(elements, most, each=bucket_bytes == 0, backward=backward)
    ]


def _grouped(elements: Sequence[int], most: int, *, each: bool, backward: bool) -> list[range]:
    """Return runs of whole keys, each of at most ``most`` elements where it has several."""
    order = range(len(elements))[:: -1 if backward else 1]
    groups: list[list[int]] = []
    held = 0
    for key in order:
        if not groups or each or held + elements[key] > most:
            groups.append([])
            held = 0
        groups[-1].append(key)
        held += elements[key]
    return [range(min(group), max(group) + 1) for group in groups]


def _filled(starts: Sequence[int], most: int, backward: bool) -> list[Bucket]:
    """Return buckets of ``most`` elements and a last one of what is left."""
    total = starts[-1]
    cuts = range(0, total, most)
    spans = [(first, min(first + most, total)) for first in cuts]
    if backward:
        spans = [(total - last, total - first) for first, last in spans]
    return [Bucket(first, last, _keys_within(starts, first, last)) for first, last in spans]


def _keys_within(starts: Sequence[int], first: int, last: int) -> range:
    begin = bisect_right(starts, first) - 1
    return range(begin, bisect_left(starts, last, begin + 1))


class Arena:
    """Float32 arrays of all keys on the host, one after another in key order, zeros at first.

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
    """Return an array for each of these keys, and one of no elements for each other key."""
    wanted = set(keys)
    return Arena([count if key in wanted else 0 for key, count in enumerate(elements)]).views
