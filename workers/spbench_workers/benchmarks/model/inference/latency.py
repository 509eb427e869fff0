"""Latency of inference from a request's arrival to its answer, under a load.

A request is the images of one step. Requests are answered in order, one at a time. Under a closed
load, one client sends its next request with the answer to the last one, so no request waits and a
latency is the time of a step. Under an open load, requests arrive independently in a Poisson
process with exponentially distributed gaps. A request that arrives before the last answer waits,
and its wait counts.

Schroeder, Wierman, Harchol-Balter, "Open Versus Closed: A Cautionary Tale", NSDI 2006.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, quantiles
from time import perf_counter

from spbench_core.catalog.typed_params import require_value
from spbench_parallel.errors import FaultWithoutEffectError
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.model.params import ModelParams
from spbench_workers.context import Context

FAULT = "uncounted-wait"
TOLERANCE_MS = 1e-6
"""All times are from one clock, so only the sums of the check round."""
_SPIN_SECONDS = 1e-3
"""Seconds of busy waiting before an arrival, because a sleep may end that much too late."""
_REPORT_SECONDS = 0.5
"""Seconds between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The times of all requests, in seconds of rank 0's clock since the start.

    Attributes:
        arrivals: The arrivals.
        starts: The starts of work on each request.
        ends: The ends of work on all ranks.
    """

    arrivals: Sequence[float]
    starts: Sequence[float]
    ends: Sequence[float]

    @property
    def work(self) -> list[float]:
        """The seconds of work on each request."""
        return [end - begin for begin, end in zip(self.starts, self.ends, strict=True)]

    def latencies(self) -> list[float]:
        """Return the seconds from each request's arrival to its answer."""
        return [end - begin for begin, end in zip(self.arrivals, self.ends, strict=True)]

    def lower_bounds(self) -> Iterator[float]:
        """Yield the least possible latency of each request.

        By Lindley's recursion, work begins at the arrival or after the previous work.
        """
        end = 0.0
        for arrival, work in zip(self.arrivals, self.work, strict=True):
            end = max(arrival, end) + work
            yield end - arrival


def draw_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Return the arrival times of a Poisson process in s; ``rate`` is per second."""
    generator = random.Random(seed)
    return list(accumulate(generator.expovariate(rate) for _ in range(count)))


def serve(context: Context, answer: Callable[[], object], arrivals: Sequence[float]) -> Requests:
    """Answer requests as they arrive; return their times. All ranks must call it.

    Args:
        context: The case.
        answer: Answers the next request, all ranks beginning together.
        arrivals: Their arrivals.
    """
    comm = context.world.comm
    starts = [0.0] * len(arrivals)
    ends = [0.0] * len(arrivals)
    context.progress("requests", 0, len(arrivals))
    comm.Barrier()
    start = last_report = perf_counter()
    for index, arrival in enumerate(arrivals):
        if comm.rank == 0:
            _wait_until(start + arrival)
        starts[index] = perf_counter() - start
        answer()
        comm.Barrier()
        ends[index] = perf_counter() - start
        if perf_counter() - last_report > _REPORT_SECONDS:
            last_report = perf_counter()
            context.progress("requests", index + 1, len(arrivals))
    context.progress("requests", len(arrivals), len(arrivals))
    requests: Requests = comm.bcast(Requests(arrivals, starts, ends))
    return requests


def report_open_latency(context: Context, requests: Requests) -> None:
    """Report and check the latencies of an open load. All ranks must call it.

    Raises:
        FaultWithoutEffectError: The fault of uncounted waits is injected, and no request waited.
    """
    latencies = requests.latencies()
    if context.planted_in_job(FAULT):
        latencies = _remove_waits(requests)
    rate = require_value(context.read_params(ModelParams).arrival_rate)
    context.metric("offered_load", fmean(requests.work) * rate)
    report_latency(context, [1000.0 * latency for latency in latencies])
    if "latency" in context.entry.list_checks(context.params):
        context.check_worst("latency", compare_with_lower_bounds(latencies, requests))


def report_latency(context: Context, latencies_ms: list[float]) -> None:
    """Report the latency of each request, and percentiles."""
    context.samples("latency_ms", latencies_ms)
    if context.world.rank == 0:
        texts = (
            f"p{percent} {_compute_percentile(latencies_ms, percent):.6g}"
            for percent in (50, 95, 99)
        )
        context.say(f"Latency (ms) {' '.join(texts)}")


def compare_with_lower_bounds(latencies: Sequence[float], requests: Requests) -> WorstError:
    """Return the largest ms by which a latency is below its bound, with the request."""
    worst = WorstError.with_tolerance(TOLERANCE_MS)
    for index, (latency, bound) in enumerate(zip(latencies, requests.lower_bounds(), strict=True)):
        detail = f"request {index}: {latency * 1000:.6g} ms, and not below {bound * 1000:.6g} ms"
        worst.add(1000.0 * (bound - latency), TOLERANCE_MS, detail)
    return worst


def _compute_percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _remove_waits(requests: Requests) -> list[float]:
    if not compare_with_lower_bounds(requests.work, requests).exceeds:
        raise FaultWithoutEffectError(
            f"{FAULT}: no request had to wait for another; take a higher arrival_rate"
        )
    return requests.work


def _wait_until(arrival: float) -> None:
    remaining = arrival - perf_counter()
    if remaining > _SPIN_SECONDS:
        time.sleep(remaining - _SPIN_SECONDS)
    while perf_counter() < arrival:
        pass
