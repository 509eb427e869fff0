"""Sorted samples that grow, with exact percentiles at any time."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import ClassVar

from spbench.stats.summary import median, percentile


class SortedSamples:
    """Samples in ascending order, in blocks, so that adding samples moves only few.

    Attributes:
        block_samples: The samples of a new block; a block with more than twice as many is split.
        few_samples: Up to this many new samples are inserted one by one; with more, the block is
            sorted again.
    """

    block_samples: ClassVar[int] = 1024
    few_samples: ClassVar[int] = 32

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._blocks: list[array[float]] = []
        self._block_maxima: list[float] = []
        self._count = 0
        self.add(values)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[float]:
        return chain.from_iterable(self._blocks)

    def __getitem__(self, index: int) -> float:
        """Return the sample at an index from 0."""
        for block in self._blocks:
            if index < len(block):
                return block[index]
            index -= len(block)
        raise IndexError("there are fewer samples")

    @property
    def smallest(self) -> float:
        """The smallest sample; there must be one."""
        return self._blocks[0][0]

    @property
    def largest(self) -> float:
        """The largest sample; there must be one."""
        return self._block_maxima[-1]

    def percentile(self, fraction: float) -> float:
        """Return a percentile, like `summary.percentile`; there must be a sample."""
        return percentile(self._blocks[0] if len(self._blocks) == 1 else self, fraction)

    def count_below(self, value: float) -> int:
        """Return the number of samples that are smaller than a value."""
        index = bisect_left(self._block_maxima, value)
        if index == len(self._blocks):
            return self._count
        return sum(map(len, self._blocks[:index])) + bisect_left(self._blocks[index], value)

    def add(self, values: Iterable[float]) -> None:
        """Add samples, in any order."""
        new_values = sorted(values)
        self._count += len(new_values)
        if len(self._blocks) < 2:  # the usual state of a rank
            if self._blocks:
                self._merge(0, new_values)
            elif new_values:
                self._replace_block(0, array("d", new_values))
            return
        # From the largest down: splitting a block shifts only blocks that are finished.
        while new_values:
            index = min(bisect_left(self._block_maxima, new_values[-1]), len(self._blocks) - 1)
            first_new = bisect_right(new_values, self._block_maxima[index - 1]) if index else 0
            self._merge(index, new_values[first_new:])
            del new_values[first_new:]

    def _merge(self, index: int, new_values: list[float]) -> None:
        block = self._blocks[index]
        if len(new_values) <= self.few_samples:
            for value in new_values:
                insort(block, value)
        else:
            block = array("d", sorted([*block, *new_values]))
        if block is self._blocks[index] and len(block) <= 2 * self.block_samples:
            self._block_maxima[index] = block[-1]
        else:
            self._replace_block(index, block)

    def _replace_block(self, index: int, block: array[float]) -> None:
        """Replace the block at ``index``, in pieces if the new one is too long."""
        size = self.block_samples if len(block) > 2 * self.block_samples else len(block)
        pieces = [block[first : first + size] for first in range(0, len(block), size)]
        self._blocks[index : index + 1] = pieces
        self._block_maxima[index : index + 1] = [piece[-1] for piece in pieces]


class SortedRepeats:
    """Samples of several repeats, in the order of their arrival.

    Args:
        samples_type: The class of the samples of all repeats, and of each.

    Attributes:
        values: The samples of all repeats in ascending order.
    """

    __slots__ = ("_medians", "_repeats", "values")

    def __init__(self, samples_type: type[SortedSamples] = SortedSamples) -> None:
        self.values = samples_type()
        self._repeats: dict[int, SortedSamples] = {}
        self._medians: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.values)

    def add(self, repeat: int, values: Sequence[float]) -> None:
        """Add samples of a repeat, in any order."""
        if not values:
            return
        if repeat not in self._repeats:
            samples_type = type(self.values)
            if len(self._repeats) == 1:  # the first repeat shared its samples with `values`
                self._repeats = {first: samples_type(self.values) for first in self._repeats}
            self._repeats[repeat] = samples_type() if self._repeats else self.values
        self.values.add(values)
        if len(self._repeats) > 1:
            self._repeats[repeat].add(values)
        self._medians.pop(repeat, None)

    def median(self) -> float:
        """Return the same as `summary.median_of_repeats`; there must be a sample."""
        for repeat, samples in self._repeats.items():
            if repeat not in self._medians:
                self._medians[repeat] = samples.percentile(0.50)
        return median(self._medians.values())
