"""Single-rank baseline: the rate of rank 0 while the others sleep, the limit of all at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from statistics import median

from spbench_workers.comm import rest
from spbench_workers.context import Context
from spbench_workers.timing import time_batch

MEASURED_BY = "rank 0 alone, the other ranks asleep"
MAX_ITERATIONS = 10


def give_rate_and_limit(
    context: Context,
    body: Callable[[], object],
    times: array[float],
    *,
    rate: str,
    amount: float,
) -> None:
    """Report the rate at the slowest rank's time, and as its limit the baseline of rank 0 alone.

    All ranks must call it.

    Args:
        context: The case.
        body: One iteration, without any fault in it.
        times: This rank's times in ms, as `measure` returned them.
        rate: The name of the rate's metric.
        amount: The work of one iteration, in the metric's unit times one second.
    """
    context.metric(rate, amount / (context.median_of_slowest(times) / 1000.0))
    rest(context.world.comm)
    if context.world.rank == 0:
        seconds = _seconds(body, min(MAX_ITERATIONS, len(times)))
        context.limit("time_ms", seconds * 1000.0, MEASURED_BY)
        context.limit(rate, amount / seconds, MEASURED_BY)
    rest(context.world.comm)


def _seconds(body: Callable[[], object], iterations: int) -> float:
    body()
    times = array("d", bytes(8 * iterations))
    time_batch(body, times, 0, iterations, 1.0)
    return median(times)
