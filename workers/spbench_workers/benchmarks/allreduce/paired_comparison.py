"""Paired comparison of two alternatives by interleaved timing."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from time import perf_counter

import numpy as np
from mpi4py import MPI

MAX_PAIRS = 24
MIN_PAIRS = 8
"""Bounds of the number of pairs of batches; with fewer no difference is significant."""
_BATCH_SECONDS = 0.004
_TOTAL_SECONDS = 0.5
_MAX_SECONDS = 4.0
"""Seconds of all pairs together, and the most that `MIN_PAIRS` pairs may take."""
_RESAMPLES = 2000

Interval = tuple[float, float]


class ComparisonOutcome(StrEnum):
    """Whether the first of two alternatives is faster or slower."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no significant difference"


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A comparison of one alternative with another.

    Attributes:
        ratio: The time of the first over that of the other, the median over pairs of batches.
        interval: The 95 % confidence interval of the ratio.
        outcome: Whether the first one is faster or slower.
        pairs: The number of pairs of batches.
        other_seconds: The seconds of one run of the other alternative, the median over batches.
    """

    ratio: float
    interval: Interval
    outcome: ComparisonOutcome
    pairs: int
    other_seconds: float


def compare_interleaved(
    comm: MPI.Intracomm,
    first: Callable[[], object],
    other: Callable[[], object],
    seconds: float,
    longest: int,
) -> PairedComparison:
    """Time interleaved batches, so that changes over time affect both equally.

    All ranks must call it, and all get the same result. The slowest rank's time of a batch counts.

    Args:
        comm: The ranks.
        first: The first alternative.
        other: The other alternative.
        seconds: About the time of the slower of them, the same on all ranks.
        longest: Runs in a batch, at most.
    """
    batch_size = max(1, min(longest, int(_BATCH_SECONDS / max(seconds, 1e-9))))
    pair_count = _count_pairs(2.0 * batch_size * seconds)
    sides = ((first, array("d")), (other, array("d")))
    for pair in range(pair_count):
        for body, batch_seconds in sides if pair % 2 == 0 else reversed(sides):
            batch_seconds.append(_time_batch(comm, body, batch_size))
    for _, batch_seconds in sides:
        comm.Allreduce(MPI.IN_PLACE, batch_seconds, op=MPI.MAX)
    return compare_times(*(batch_seconds for _, batch_seconds in sides))


def _count_pairs(pair_seconds: float) -> int:
    """Return the number of pairs to time; a pair takes ``pair_seconds``."""
    affordable_pairs = min(MAX_PAIRS, int(_TOTAL_SECONDS / max(pair_seconds, 1e-9)))
    return max(affordable_pairs, min(MIN_PAIRS, int(_MAX_SECONDS / max(pair_seconds, 1e-9))), 1)


def _time_batch(comm: MPI.Intracomm, body: Callable[[], object], count: int) -> float:
    """Return the seconds of one run; short runs follow an untimed one for the caches."""
    if count > 1:
        body()
    comm.Barrier()
    start = perf_counter()
    for _ in range(count):
        body()
    return (perf_counter() - start) / count


def compare_times(
    first_seconds: Sequence[float], other_seconds: Sequence[float]
) -> PairedComparison:
    """Compare times measured in pairs.

    The first alternative is faster only if the intervals of all pairs, of the first half and of the
    second half are all below 1, and slower only if all are above 1. So a temporary disturbance is
    not reported as a difference. With fewer than `MIN_PAIRS` pairs no difference is significant.
    """
    ratios = np.array(first_seconds) / np.array(other_seconds)
    ratio = float(np.median(ratios))
    interval = _bootstrap_interval(ratios)
    outcome = ComparisonOutcome.NO_DIFFERENCE
    if len(ratios) >= MIN_PAIRS:
        outcome = _judge([interval, *map(_bootstrap_interval, np.array_split(ratios, 2))])
    return PairedComparison(ratio, interval, outcome, len(ratios), median(other_seconds))


def _judge(intervals: Sequence[Interval]) -> ComparisonOutcome:
    if all(high < 1.0 for _, high in intervals):
        return ComparisonOutcome.FASTER
    if all(low > 1.0 for low, _ in intervals):
        return ComparisonOutcome.SLOWER
    return ComparisonOutcome.NO_DIFFERENCE


def _bootstrap_interval(ratios: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Interval:
    """Return the 95 % interval of the median by bootstrap (Efron, 1979)."""
    sampled_indices = np.random.default_rng(0).integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[sampled_indices], axis=1), (2.5, 97.5))
    return float(low), float(high)
