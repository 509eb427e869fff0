"""The histogram of a case's samples: bins for drawing, of one rank or of all together."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import exp, floor, log
from typing import Protocol

from spbench.record.case_state import CaseState

PER_E = 1000.0
"""Kept bins in a factor of e: each is 0.1 % wide, finer than any bin that is drawn."""
TAIL, TAIL_FROM = 0.999, 1000
"""The part of the samples that is drawn, and the number of samples from which on it is not all."""
FENCE, LEAST_SPREAD = 3.0, 0.01
"""Samples beyond the upper quartile by this many interquartile ranges are far out (Tukey 1977).

The range counts as at least this part of the quartile, so that equal samples have one too.
"""
MOST_FAR_OUT = 0.1
"""The part of the samples up to which those far out are counted and not drawn; one always is."""


class Distribution(Protocol):
    """A distribution: it counts the samples below a value; there is at least one sample."""

    def __len__(self) -> int: ...

    @property
    def least(self) -> float:
        """The smallest sample."""

    @property
    def greatest(self) -> float:
        """The largest sample."""

    def below(self, value: float) -> float:
        """Return how many samples are smaller than a value."""

    def percentile(self, fraction: float) -> float:
        """Return a percentile."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of equal width: ``counts[i]`` samples lie between ``edges[i]`` and ``edges[i + 1]``.

    ``beyond`` samples are larger than the last edge.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    beyond: int


def bins(samples: Distribution, count: int, *, whole: bool = False) -> Bins:
    """Return the samples in ``count`` bins, from the smallest to `drawn_end`.

    Up to the largest if ``whole`` is set.
    """
    n, low, greatest = len(samples), samples.least, samples.greatest
    high = greatest if whole else drawn_end(samples)
    drawn = n if high == greatest else round(samples.below(high))
    if high <= low:  # all alike: they stand in the first bin
        high, drawn = low + (abs(low) or 1.0) / 100, n
    step = (high - low) / count
    edges = (*(low + index * step for index in range(count)), high)
    within = (min(drawn, round(samples.below(edge))) for edge in edges[1:-1])
    counts = tuple(upper - lower for lower, upper in pairwise((0, *within, drawn)))
    return Bins(edges, counts, n - drawn)


def drawn_end(samples: Distribution) -> float:
    """Return where a drawing of samples ends, so that a few slow ones leave the others room."""
    n, end = len(samples), samples.greatest
    if n >= TAIL_FROM:
        end = min(samples.percentile(TAIL), end)
    quartile = samples.percentile(0.75)
    spread = max(quartile - samples.percentile(0.25), LEAST_SPREAD * abs(quartile))
    fence = quartile + FENCE * spread
    far_out = n - samples.below(fence)
    return min(fence, end) if far_out <= max(1.0, MOST_FAR_OUT * n) else end


class Histogram:
    """A case's samples of a metric in bins of 0.1 %, which grow with their spread alone.

    ``update`` takes in what is new in the case. Samples of 0 and below share one bin.
    """

    def __init__(self, case: CaseState, metric: str, rank: int | None = None) -> None:
        self._case = case
        self._metric = metric
        self._rank = rank
        self._taken: dict[tuple[int, int], int] = {}
        self._bins: Counter[int] = Counter()
        self._not_positive = 0
        self._count = 0
        self._least, self._greatest = float("inf"), float("-inf")
        self._keys: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return self._count

    @property
    def least(self) -> float:
        """The smallest sample."""
        return self._least

    @property
    def greatest(self) -> float:
        """The largest sample."""
        return self._greatest

    def update(self) -> None:
        """Take in the samples that have come since."""
        new = array("d")
        of_metric = self._case.measured.samples.get(self._metric, {})
        for rank in of_metric if self._rank is None else (self._rank,):
            for repeat, values in of_metric.get(rank, {}).items():
                taken = self._taken.get((rank, repeat), 0)
                if len(values) > taken:
                    new += values[taken:]
                    self._taken[rank, repeat] = len(values)
        if new:
            self._add(new)

    def _add(self, new: array[float]) -> None:
        self._count += len(new)
        self._least = min(self._least, min(new))
        self._greatest = max(self._greatest, max(new))
        positive: Iterable[float] = new
        if self._least <= 0:
            positive = [value for value in new if value > 0]
            self._not_positive += len(new) - len(positive)
        # All in C, a tenth of a microsecond a sample.
        self._bins.update(map(floor, map(PER_E.__mul__, map(log, positive))))
        self._keys = sorted(self._bins)
        self._ends = list(accumulate(self._bins[key] for key in self._keys))

    def below(self, value: float) -> float:
        """Return how many samples are smaller than a value, to a part of a bin."""
        if value <= 0:
            return self._not_positive * _share(value, self._least, min(0.0, self._greatest))
        key = floor(log(value) * PER_E)
        at = bisect_left(self._keys, key)
        under = self._not_positive + (self._ends[at - 1] if at else 0)
        if at == len(self._keys) or self._keys[at] != key:
            return under
        return under + self._bins[key] * _share(value, *self._edges(key))

    def percentile(self, fraction: float) -> float:
        """Return a percentile, to the width of a bin."""
        wanted = fraction * self._count - self._not_positive
        if not self._keys or (self._not_positive and wanted <= 0):
            return min(self._greatest, 0.0)
        at = min(bisect_left(self._ends, wanted), len(self._keys) - 1)
        return self._edges(self._keys[at])[1]

    def _edges(self, key: int) -> tuple[float, float]:
        """The ends of a bin, as far as there are samples in it."""
        low, high = exp(key / PER_E), exp((key + 1) / PER_E)
        return max(low, self._least), min(high, self._greatest)


def _share(value: float, low: float, high: float) -> float:
    """Return the share of a bin that lies below a value, 0 to 1."""
    if low == high:
        return float(value > low)
    return min(1.0, max(0.0, (value - low) / (high - low)))
