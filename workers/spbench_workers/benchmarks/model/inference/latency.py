"""Latency of inference: the time from a request's arrival to its answer, under a load.

A request is the images of one step; requests are answered one after another, in their order. Under
a closed load there is one client, whose next request arrives with the answer to the last: nothing
ever waits, and a latency is the time of a step. Under an open load requests arrive by themselves, a
Poisson process: the gaps between them are drawn, of an exponential distribution. A request that
arrives before the last one's answer waits, and its wait counts.

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
"""All times are of one clock: only the sums of the check round."""
_SPIN = 1e-3
"""Seconds before an arrival that are not slept: sleeping may last as much too long."""
_SAY = 0.5
"""Seconds from one sign of progress to the next."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The times of all requests, in seconds of rank 0's clock since the first could arrive.

    Attributes:
        arrived: The arrivals.
        begun: The beginnings of the work on each.
        answered: The ends of that work, on all ranks.
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
        """Yield the least latency of each request that its arrival and all work let be.

        It is Lindley's recursion: work begins with the arrival or after the work before it.
        """
        end = 0.0
        for arrived, work in zip(self.arrivals, self.work, strict=True):
            end = max(arrived, end) + work
            yield end - arrived


def draw_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Return the seconds at which requests arrive: ``rate`` a second in the long run."""
    source = random.Random(seed)
    return list(accumulate(source.expovariate(rate) for _ in range(count)))


def serve(context: Context, answer: Callable[[], object], arrived: Sequence[float]) -> Requests:
    """Answer requests as they arrive; return their times. All ranks must call it.

    Args:
        context: The case.
        answer: Answers the next request, all ranks beginning together.
        arrived: Their arrivals.
    """
    comm = context.world.comm
    begun = [0.0] * len(arrived)
    answered = [0.0] * len(arrived)
    context.progress("requests", 0, len(arrived))
    comm.Barrier()
    start = said = perf_counter()
    for index, due in enumerate(arrived):
        if comm.rank == 0:
            _wait_until(start + due)
        begun[index] = perf_counter() - start
        answer()
        comm.Barrier()
        answered[index] = perf_counter() - start
        if perf_counter() - said > _SAY:
            said = perf_counter()
            context.progress("requests", index + 1, len(arrived))
    context.progress("requests", len(arrived), len(arrived))
    found: Requests = comm.bcast(Requests(arrived, begun, answered))
    return found


def report_open_latency(context: Context, requests: Requests) -> None:
    """Report and check the latencies of an open load. All ranks must call it.

    Raises:
        NothingToSpoilError: The fault of uncounted waits is planted, and no request has waited.
    """
    seconds = requests.latencies()
    if context.planted_in_job(FAULT):
        seconds = _without_waits(requests)
    rate = require_value(context.read_params(ModelParams).arrival_rate)
    context.metric("offered_load", fmean(requests.work) * rate)
    report_latency(context, [1000.0 * one for one in seconds])
    if "latency" in context.entry.list_checks(context.params):
        context.check_worst("latency", find_too_short(seconds, requests))


def report_latency(context: Context, milliseconds: list[float]) -> None:
    """Report latencies, request by request."""
    context.samples("latency_ms", milliseconds)
    if context.world.rank == 0:
        said = (f"p{share} {_percentile(milliseconds, share):.6g}" for share in (50, 95, 99))
        context.say(f"Latency (ms) {' '.join(said)}")


def find_too_short(seconds: Sequence[float], requests: Requests) -> WorstError:
    """Return the most ms by which a latency is less than possible, and its request; 0 if none."""
    worst = WorstError.with_tolerance(TOLERANCE_MS)
    for index, (latency, least) in enumerate(zip(seconds, requests.lower_bounds(), strict=True)):
        detail = f"request {index}: {latency * 1000:.6g} ms, and not below {least * 1000:.6g} ms"
        worst.add(1000.0 * (least - latency), TOLERANCE_MS, detail)
    return worst


def _percentile(values: Sequence[float], share: int) -> float:
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[share - 1]


def _without_waits(requests: Requests) -> list[float]:
    if not find_too_short(requests.work, requests).exceeds:
        raise FaultWithoutEffectError(
            f"{FAULT}: no request had to wait for another; take a higher arrival_rate"
        )
    return requests.work


def _wait_until(due: float) -> None:
    left = due - perf_counter()
    if left > _SPIN:
        time.sleep(left - _SPIN)
    while perf_counter() < due:
        pass
