"""Single-rank baseline: the rate of rank 0 while the other ranks sleep."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from time import perf_counter

from spbench_parallel.groups import sleep_at_barrier
from spbench_workers.context import Context
from spbench_workers.timing import time_batch

MEASURED_BY = "rank 0 alone, the other ranks asleep"
WARM_SECONDS = 0.01
"""Seconds of warm-up, at least one iteration: a core is slow at first after its sleep."""
FEWEST_ITERATIONS = 10
"""The least number of timed iterations, unless the case has fewer."""
MOST_SECONDS = 0.1
"""Seconds after which no more than `FEWEST_ITERATIONS` are timed."""
PARTS = 3
"""Parts of the timed iterations. The fastest one counts, so that a short disturbance does not."""


def report_rate_and_limit(
    context: Context,
    body: Callable[[], object],
    times_ms: array[float],
    *,
    rate: str,
    work_per_iteration: float,
) -> None:
    """Report the slowest rank's rate, and the rate of rank 0 as its limit.

    All ranks must call it.

    Args:
        context: The case.
        body: One iteration, without any fault in it.
        times_ms: This rank's times in ms, from `measure`.
        rate: The name of the rate's metric.
        work_per_iteration: The work of one iteration, in the metric's unit times one second.
    """
    context.metric(rate, work_per_iteration / (context.median_of_slowest(times_ms) / 1000.0))
    # All ranks sleep from the first barrier to the second, while rank 0 measures.
    sleep_at_barrier(context.world.comm)
    if context.world.rank == 0:
        seconds = time_single_rank(body, len(times_ms))
        context.limit("time_ms", seconds * 1000.0, MEASURED_BY)
        context.limit(rate, work_per_iteration / seconds, MEASURED_BY)
    sleep_at_barrier(context.world.comm)


def time_single_rank(body: Callable[[], object], iterations: int) -> float:
    """Return the median seconds of an iteration in the fastest part of them."""
    warm_iterations = 0
    start = now = perf_counter()
    while not warm_iterations or now - start < WARM_SECONDS:
        body()
        warm_iterations += 1
        now = perf_counter()

    affordable_iterations = int(MOST_SECONDS * warm_iterations / (now - start))
    timed_iterations = min(iterations, max(FEWEST_ITERATIONS, affordable_iterations))
    seconds = array("d", bytes(8 * timed_iterations))
    time_batch(body, seconds, 0, timed_iterations, 1.0)

    part_count = max(1, min(PARTS, timed_iterations // FEWEST_ITERATIONS))
    part_ends = [part * timed_iterations // part_count for part in range(part_count + 1)]
    return min(median(seconds[first:end]) for first, end in pairwise(part_ends))
