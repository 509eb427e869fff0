"""Sorted samples that grow, so that percentiles are exact at any time."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from spbench.stats.summary import median, percentile

BLOCK_SIZE = 1024
"""Samples that a block begins with; it is split when it has more than twice as many."""
FEW_SAMPLES = 32
"""Up to this many samples are put into a block one by one, more by sorting it again."""


class SortedSamples:
    """Samples in ascending order, in sorted blocks: a batch moves little of a million."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._blocks: list[array[float]] = []
        self._lasts: list[float] = []
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
        return self._lasts[-1]

    def percentile(self, fraction: float) -> float:
        """Return a percentile, like `summary.percentile`; there must be a sample."""
        return percentile(self._blocks[0] if len(self._blocks) == 1 else self, fraction)

    def count_below(self, value: float) -> int:
        """Return how many samples are smaller than a value."""
        at = bisect_left(self._lasts, value)
        if at == len(self._blocks):
            return self._count
        return sum(map(len, self._blocks[:at])) + bisect_left(self._blocks[at], value)

    def add(self, values: Iterable[float]) -> None:
        """Take in samples, in any order."""
        new = sorted(values)
        self._count += len(new)
        if len(self._blocks) < 2:  # as most ranks have
            if self._blocks:
                self._merge(0, new)
            elif new:
                self._put(0, array("d", new))
            return
        # From the largest down, so that a block that is split moves none that is still needed.
        while new:
            at = min(bisect_left(self._lasts, new[-1]), len(self._blocks) - 1)
            start = bisect_right(new, self._lasts[at - 1]) if at else 0
            self._merge(at, new[start:])
            del new[start:]

    def _merge(self, at: int, new: list[float]) -> None:
        block = self._blocks[at]
        if len(new) <= FEW_SAMPLES:
            for value in new:
                insort(block, value)
        else:
            block = array("d", sorted([*block, *new]))
        if block is self._blocks[at] and len(block) <= 2 * BLOCK_SIZE:
            self._lasts[at] = block[-1]
        else:
            self._put(at, block)

    def _put(self, at: int, block: array[float]) -> None:
        """Let a block stand at ``at``, in pieces where it is too long."""
        size = BLOCK_SIZE if len(block) > 2 * BLOCK_SIZE else len(block)
        pieces = [block[first : first + size] for first in range(0, len(block), size)]
        self._blocks[at : at + 1] = pieces
        self._lasts[at : at + 1] = [piece[-1] for piece in pieces]


class SortedRepeats:
    """Samples of several repeats as they come.

    Attributes:
        values: The samples of all repeats in ascending order.
    """

    __slots__ = ("_medians", "_repeats", "values")

    def __init__(self) -> None:
        self.values = SortedSamples()
        self._repeats: dict[int, SortedSamples] = {}
        self._medians: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.values)

    def add(self, repeat: int, values: Sequence[float]) -> None:
        """Take in samples of a repeat, in any order."""
        if not values:
            return
        if repeat not in self._repeats:
            if len(self._repeats) == 1:  # it shared its samples with `values`
                self._repeats = {first: SortedSamples(self.values) for first in self._repeats}
            self._repeats[repeat] = SortedSamples() if self._repeats else self.values
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
