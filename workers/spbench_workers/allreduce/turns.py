"""Two ways to do the same, timed by turns, and whether one of them is faster."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Literal

import numpy as np
from mpi4py import MPI

MOST_PAIRS, LEAST_PAIRS = 24, 8
_BATCH_SECONDS = 0.004
_ALL_SECONDS = 0.5
_RESAMPLES = 2000

Verdict = Literal["faster", "slower", "no significant difference"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One way against another.

    Attributes:
        ratio: Time of the one over time of the other: the median over pairs of batches.
        interval: Its 95 % confidence interval.
        verdict: What may be said of the one.
        pairs: How many pairs of batches there were.
        other_seconds: One run of the other way, median over batches.
    """

    ratio: float
    interval: Interval
    verdict: Verdict
    pairs: int
    other_seconds: float


def by_turns(
    comm: MPI.Intracomm,
    one: Callable[[], object],
    other: Callable[[], object],
    seconds: float,
    longest: int,
) -> Comparison:
    """Time batches of both in turns, so that what changes with time touches both alike.

    All ranks must call it, and all get the same answer: a batch takes as long as on its slowest
    rank.

    Args:
        comm: The ranks.
        one: One way.
        other: The other.
        seconds: About how long the slower of them takes; the same on all ranks.
        longest: Runs in a batch, at most.
    """
    batch = max(1, min(longest, int(_BATCH_SECONDS / max(seconds, 1e-9))))
    both = 2.0 * batch * seconds
    pairs = max(LEAST_PAIRS, min(MOST_PAIRS, int(_ALL_SECONDS / max(both, 1e-9))))
    ways = ((one, array("d")), (other, array("d")))
    for pair in range(pairs):
        for body, times in ways if pair % 2 == 0 else reversed(ways):
            times.append(_batch_seconds(comm, body, batch))
    for _, times in ways:
        comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    return compare(*(times for _, times in ways))


def _batch_seconds(comm: MPI.Intracomm, body: Callable[[], object], count: int) -> float:
    """Return the seconds of one run; a first one, which is not counted, fills the caches."""
    body()
    comm.Barrier()
    start = perf_counter()
    for _ in range(count):
        body()
    return (perf_counter() - start) / count


def compare(one: Sequence[float], other: Sequence[float]) -> Comparison:
    """Compare times that were measured in pairs.

    One way is called faster only if the interval of the whole and those of the first and of the
    second half all lie below 1, and slower only if all lie above: what comes and goes within the
    measurement is no difference.
    """
    ratios = np.array(one) / np.array(other)
    half = len(ratios) // 2
    intervals = [_interval(part) for part in (ratios, ratios[:half], ratios[half:])]
    verdict: Verdict = "no significant difference"
    if all(high < 1.0 for _, high in intervals):
        verdict = "faster"
    elif all(low > 1.0 for low, _ in intervals):
        verdict = "slower"
    ratio = float(np.median(ratios))
    return Comparison(ratio, intervals[0], verdict, len(ratios), median(other))


def _interval(ratios: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Interval:
    """Return the 95 % interval of the median by bootstrap (Efron, 1979)."""
    drawn = np.random.default_rng(0).integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[drawn], axis=1), (2.5, 97.5))
    return float(low), float(high)
