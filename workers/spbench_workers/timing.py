"""Timed loops: samples are kept in a preallocated buffer and sent between batches."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from spbench_core.events.rank_events import BATCH_INTERVAL
from spbench_core.events.statuses import Activity

if TYPE_CHECKING:
    from spbench_workers.context import Context

MAX_BATCH = 20_000
"""The largest number of samples in one event, well below the longest line."""
SAMPLE_SECONDS = 100e-6
"""Seconds of a sample of short calls: long enough that the cost of the clock is negligible."""
MAX_CALLS = 10_000
"""The largest number of calls in a sample."""
QUIET_SECONDS = 1.0
"""Seconds of warm-up after which progress is reported: fast calls are not disturbed."""
WAITED = "waited_ms"
"""The metric of the time that a rank waits for others within an iteration."""
NO_PAUSES: Mapping[int, Callable[[], object]] = MappingProxyType({})


def measure(
    context: Context,
    body: Callable[[], object],
    *,
    metric: str = "time_ms",
    divide: int = 1,
    iterations: int | None = None,
    pauses: Mapping[int, Callable[[], object]] = NO_PAUSES,
    after_batch: Callable[[int, float], object] | None = None,
    waits: list[float] | None = None,
) -> array[float]:
    """Run warm-up and timed iterations of ``body``; return this rank's times in ms.

    Ranks run batches together, and no event is sent within a batch. Between two batches, each rank
    sends its samples while the others wait, so that sending lengthens no iteration of another rank.

    Args:
        context: The case; its parameters ``warmup`` and ``iterations`` are the numbers of calls.
        body: One iteration. It must return only when its work is done.
        metric: The metric of the samples.
        divide: The repetitions in one call of ``body``; times are of one of them.
        iterations: The number of iterations (default: the parameter).
        pauses: Functions that are called, untimed, after a number of iterations, by that number.
        after_batch: Called, untimed, after each batch with the iterations so far and the seconds of
            an iteration of the batch on the slowest rank.
        waits: A list to which ``body`` appends the seconds of each of its waits for other ranks,
            the same number in each iteration. They are sent as samples of `WAITED`.
    """
    if iterations is None:
        iterations = context.params["iterations"]
    call_seconds = _warm_up(context, body, context.params["warmup"])
    body = context.with_fault(body, call_seconds)

    times_ms = array("d", bytes(8 * iterations))
    iterations_done = 0
    context.progress(Activity.TIMING, 0, iterations)

    while iterations_done < iterations:
        batch_size = min(
            _choose_batch_size(call_seconds),
            _count_to_next_pause(pauses, iterations_done, iterations),
        )
        context.world.comm.Barrier()
        if waits is not None:
            waits.clear()
        time_batch(body, times_ms, iterations_done, batch_size, 1000.0 / divide)
        context.samples(metric, times_ms[iterations_done : iterations_done + batch_size])
        if waits is not None:
            context.samples(WAITED, _sum_waits(waits, batch_size))
        call_seconds = context.largest(
            sum(times_ms[iterations_done : iterations_done + batch_size])
            / batch_size
            * divide
            / 1000.0
        )
        iterations_done += batch_size
        context.progress(Activity.TIMING, iterations_done, iterations)
        if after_batch is not None:
            after_batch(iterations_done, call_seconds / divide)
        if iterations_done in pauses:
            pauses[iterations_done]()
    return times_ms


def _sum_waits(waits: Sequence[float], iterations: int) -> list[float]:
    """Return the summed waits of each iteration, in ms."""
    waits_per_iteration = len(waits) // iterations
    starts = range(0, iterations * waits_per_iteration, waits_per_iteration or 1)
    return [1000.0 * sum(waits[start : start + waits_per_iteration]) for start in starts]


def _count_to_next_pause(pauses: Iterable[int], done: int, iterations: int) -> int:
    """Return the iterations until the next pause, or the end."""
    return min((pause for pause in pauses if done < pause < iterations), default=iterations) - done


def _warm_up(context: Context, body: Callable[[], object], count: int) -> float:
    """Warm up.

    Return the seconds of an iteration on the slowest rank, 0 without a warm-up.
    """
    context.progress(Activity.WARMUP, 0, count)
    context.world.comm.Barrier()
    start = perf_counter()
    last_report = start
    for done in range(1, count + 1):
        body()
        if perf_counter() - last_report >= QUIET_SECONDS:
            context.progress(Activity.WARMUP, done, count)
            last_report = perf_counter()
    elapsed_seconds = perf_counter() - start
    return context.largest(elapsed_seconds / count) if count else 0.0


def _choose_batch_size(seconds: float) -> int:
    if seconds <= 0.0:
        return 1
    return max(1, min(MAX_BATCH, int(BATCH_INTERVAL / seconds)))


def time_batch(
    body: Callable[[], object], scaled_seconds: array[float], first: int, count: int, scale: float
) -> None:
    """Call ``body`` ``count`` times.

    Store the seconds of each call, multiplied by ``scale``, from index ``first`` on.
    """
    gc.disable()
    try:
        for index in range(first, first + count):
            start = perf_counter()
            body()
            scaled_seconds[index] = (perf_counter() - start) * scale
    finally:
        gc.enable()


def compute_calls_per_sample(seconds: float) -> int:
    """Return the number of calls of ``seconds`` each that make a sample."""
    return max(1, min(MAX_CALLS, round(SAMPLE_SECONDS / max(seconds, 1e-9))))


def repeat_calls(body: Callable[[], object], count: int) -> Callable[[], object]:
    """Return a function that calls ``body`` ``count`` times."""
    return body if count == 1 else partial(_run_repeatedly, body, range(count))


def _run_repeatedly(body: Callable[[], object], calls: range) -> None:
    for _ in calls:
        body()


def compute_hidden_share(total: float, exposed: float, compute: float) -> float:
    """Return the hidden share of a communication.

    It is relative to the shorter of communication and computation.

    Args:
        total: The time of the communication.
        exposed: The time that it adds to a simultaneous computation.
        compute: The time of the computation.
    """
    return (total - exposed) / min(total, compute)
