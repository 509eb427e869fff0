"""Sizes of a sweep, and the bandwidths that nccl-tests prints for them."""

from __future__ import annotations

import math


def sweep_sizes(min_bytes: int, max_bytes: int, factor: float) -> list[int]:
    """Return the rising sizes of a sweep in bytes, including both ends.

    Like with ``-b``, ``-e`` and ``-f`` of nccl-tests, each size is the previous one times
    ``factor``, which may be fractional. Fractions of bytes are dropped, and no size repeats. The
    size after 0 is 1. The largest size is included even if no multiple equals it.

    Raises:
        ValueError: An end is negative, the ends are not in order, or ``factor`` is not above 1.
    """
    if not 0 <= min_bytes <= max_bytes:
        raise ValueError(f"sizes go from {min_bytes} to {max_bytes}; give 0 <= smallest <= largest")
    if not (factor > 1 and math.isfinite(factor)):
        raise ValueError(f"the factor between sizes is {factor}; it must be above 1")
    sizes_in_bytes = [min_bytes]
    exact_bytes = min_bytes * factor if min_bytes else 1.0
    while exact_bytes < max_bytes:
        if int(exact_bytes) > sizes_in_bytes[-1]:
            sizes_in_bytes.append(int(exact_bytes))
        exact_bytes *= factor
    return sizes_in_bytes if sizes_in_bytes[-1] == max_bytes else [*sizes_in_bytes, max_bytes]


def bus_factor(collective: str, ranks: int) -> float:
    """Return the factor from algorithm to bus bandwidth, as defined by nccl-tests.

    With it, a perfect algorithm on point-to-point links reaches the bandwidth of the links for any
    number of ranks (nccl-tests, doc/PERFORMANCE.md). Bytes are those of the buffer for
    ``allreduce`` and ``broadcast``, and those of all ranks together for the others.

    Raises:
        ValueError: The collective is unknown.
    """
    share = (ranks - 1) / ranks
    factors = {
        "allreduce": 2 * share,
        "allgather": share,
        "reduce_scatter": share,
        "alltoall": share,
        "broadcast": 1.0,
    }
    if collective not in factors:
        raise ValueError(f"{collective!r} is no collective; there are {', '.join(factors)}")
    return factors[collective]


def compute_algorithm_bandwidth(nbytes: int, seconds: float) -> float:
    """Return the algorithm's bandwidth: bytes over time, in GB/s of 1e9 bytes."""
    return nbytes / seconds / 1e9


def compute_bus_bandwidth(collective: str, ranks: int, nbytes: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s: the algorithm's times `bus_factor`."""
    return bus_factor(collective, ranks) * compute_algorithm_bandwidth(nbytes, seconds)
