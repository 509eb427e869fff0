"""Paired comparison: two ways to do the same, timed in turn, and which of them is faster."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Literal

import numpy as np
from mpi4py import MPI

MAX_PAIRS = 24
MIN_PAIRS = 8
"""Pairs of batches; with fewer than the least there is no verdict."""
_BATCH_SECONDS = 0.004
_ALL_SECONDS = 0.5
_MOST_SECONDS = 4.0
"""Seconds of all pairs together, and the most that they may take to reach the least number."""
_RESAMPLES = 2000

Verdict = Literal["faster", "slower", "no significant difference"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A comparison of one way with another.

    Attributes:
        ratio: The time of the one over that of the other: the median over pairs of batches.
        interval: Its 95 % confidence interval.
        verdict: Whether the one is faster or slower.
        pairs: The number of pairs of batches.
        other_seconds: The seconds of one run of the other way, median over batches.
    """

    ratio: float
    interval: Interval
    verdict: Verdict
    pairs: int
    other_seconds: float


def compare_interleaved(
    comm: MPI.Intracomm,
    one: Callable[[], object],
    other: Callable[[], object],
    seconds: float,
    longest: int,
) -> PairedComparison:
    """Time batches of both in turn, so that changes over time affect both alike.

    All ranks must call it, and all get the same answer: a batch takes as long as on its slowest
    rank.

    Args:
        comm: The ranks.
        one: One way.
        other: The other.
        seconds: About the time of the slower of them, the same on all ranks.
        longest: Runs in a batch, at most.
    """
    batch = max(1, min(longest, int(_BATCH_SECONDS / max(seconds, 1e-9))))
    pairs = _pairs_of(2.0 * batch * seconds)
    ways = ((one, array("d")), (other, array("d")))
    for pair in range(pairs):
        for body, times in ways if pair % 2 == 0 else reversed(ways):
            times.append(_batch_seconds(comm, body, batch))
    for _, times in ways:
        comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    return compare_times(*(times for _, times in ways))


def _pairs_of(seconds: float) -> int:
    """Return the number of pairs to time, each of so many seconds."""
    wanted = min(MAX_PAIRS, int(_ALL_SECONDS / max(seconds, 1e-9)))
    return max(wanted, min(MIN_PAIRS, int(_MOST_SECONDS / max(seconds, 1e-9))), 1)


def _batch_seconds(comm: MPI.Intracomm, body: Callable[[], object], count: int) -> float:
    """Return the seconds of one run; before short ones an untimed run fills the caches."""
    if count > 1:
        body()
    comm.Barrier()
    start = perf_counter()
    for _ in range(count):
        body()
    return (perf_counter() - start) / count


def compare_times(one: Sequence[float], other: Sequence[float]) -> PairedComparison:
    """Compare times that were measured in pairs.

    One way is called faster only if the interval of the whole and those of the first and of the
    second half all lie below 1, and slower only if all lie above: what comes and goes within the
    measurement is no difference. Of fewer than `LEAST_PAIRS` pairs nothing is said.
    """
    ratios = np.array(one) / np.array(other)
    ratio = float(np.median(ratios))
    interval = _interval(ratios)
    verdict: Verdict = "no significant difference"
    if len(ratios) >= MIN_PAIRS:
        verdict = _verdict([interval, *map(_interval, np.array_split(ratios, 2))])
    return PairedComparison(ratio, interval, verdict, len(ratios), median(other))


def _verdict(intervals: Sequence[Interval]) -> Verdict:
    if all(high < 1.0 for _, high in intervals):
        return "faster"
    if all(low > 1.0 for low, _ in intervals):
        return "slower"
    return "no significant difference"


def _interval(ratios: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Interval:
    """Return the 95 % interval of the median by bootstrap (Efron, 1979)."""
    drawn = np.random.default_rng(0).integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[drawn], axis=1), (2.5, 97.5))
    return float(low), float(high)
