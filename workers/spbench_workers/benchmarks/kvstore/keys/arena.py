"""Arrays of many keys in one block of memory, so that neighbours can be sent as one message."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from spbench_parallel.errors import catch_out_of_memory
from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.keys.buckets import compute_offsets


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
