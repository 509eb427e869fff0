"""Timed loops: samples are kept in a preallocated buffer and leave between batches."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from spbench_core.events.rank_events import BATCH_INTERVAL

if TYPE_CHECKING:
    from spbench_workers.context import Context

MAX_BATCH = 20_000
"""Samples in one event: well below the longest line."""
SAMPLE_SECONDS = 100e-6
"""A sample of a short call takes about as long: so many calls that the clock's cost is nothing."""
MAX_CALLS = 10_000
NO_PAUSES: Mapping[int, Callable[[], object]] = MappingProxyType({})


def measure(
    context: Context,
    body: Callable[[], object],
    *,
    metric: str = "time_ms",
    divide: int = 1,
    iterations: int | None = None,
    pauses: Mapping[int, Callable[[], object]] = NO_PAUSES,
) -> array[float]:
    """Run the case's warm-up and its timed iterations of ``body``; return this rank's times in ms.

    Ranks go through batches together: within one nothing is sent, between two each rank sends its
    samples while the others wait, so that no rank's sending lengthens another's iteration.

    Args:
        context: The case; its parameters ``warmup`` and ``iterations`` say how often.
        body: One iteration. It must return only when its work is done.
        metric: The name that the samples bear.
        divide: How many repetitions one call of ``body`` makes; times are of one of them.
        iterations: In place of the parameter's.
        pauses: By a number of iterations, what is called after so many, untimed.
    """
    if iterations is None:
        iterations = context.params["iterations"]
    seconds = _warm_up(context, body, context.params["warmup"])
    body = context.with_fault(body, seconds)
    times = array("d", bytes(8 * iterations))
    done = 0
    context.progress("timing", 0, iterations)
    while done < iterations:
        batch = min(_batch_size(seconds), _to_next(pauses, done, iterations))
        context.world.comm.Barrier()
        time_batch(body, times, done, batch, 1000.0 / divide)
        context.samples(metric, times[done : done + batch])
        seconds = context.slowest(sum(times[done : done + batch]) / batch * divide / 1000.0)
        done += batch
        context.progress("timing", done, iterations)
        if done in pauses:
            pauses[done]()
    return times


def _to_next(pauses: Iterable[int], done: int, iterations: int) -> int:
    """Return the iterations until the next pause, or the end."""
    return min((at for at in pauses if at > done), default=iterations) - done


def _warm_up(context: Context, body: Callable[[], object], count: int) -> float:
    """Return the seconds of one iteration on the slowest rank; 0 where nothing is known."""
    context.progress("warmup", 0, count)
    context.world.comm.Barrier()
    start = perf_counter()
    for _ in range(count):
        body()
    elapsed = perf_counter() - start
    return context.slowest(elapsed / count) if count else 0.0


def _batch_size(seconds: float) -> int:
    if seconds <= 0.0:
        return 1
    return max(1, min(MAX_BATCH, int(BATCH_INTERVAL / seconds)))


def time_batch(
    body: Callable[[], object], times: array[float], first: int, count: int, scale: float
) -> None:
    """Call ``body`` ``count`` times; keep each call's seconds, times ``scale``, from ``first``."""
    gc.disable()
    try:
        for index in range(first, first + count):
            start = perf_counter()
            body()
            times[index] = (perf_counter() - start) * scale
    finally:
        gc.enable()


def calls_of(seconds: float) -> int:
    """Return how many calls, each of so many seconds, make a sample."""
    return max(1, min(MAX_CALLS, round(SAMPLE_SECONDS / max(seconds, 1e-9))))


def repeated(body: Callable[[], object], count: int) -> Callable[[], object]:
    """Return ``body``, called ``count`` times."""
    return body if count == 1 else partial(_repeat, body, range(count))


def _repeat(body: Callable[[], object], times: range) -> None:
    for _ in times:
        body()


def hidden_share(whole: float, exposed: float, compute: float) -> float:
    """Return which share of a communication is hidden, of what can be: it, or the computation.

    Args:
        whole: What the communication takes.
        exposed: What of it still holds the rank up while it computes meanwhile.
        compute: What the computation takes.
    """
    return (whole - exposed) / min(whole, compute)
