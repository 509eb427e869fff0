"""Benchmark ``link.ring``: all ranks send to both neighbours of a ring.

It follows the rings of HPCC (Rabenseifner and others). The smallest message gives the latency, the
largest the bandwidth. Results of random rings are means over all of them.
"""

from __future__ import annotations

from statistics import fmean

from spbench_workers.benchmarks.link.entry import RingParams
from spbench_workers.benchmarks.link.exchange import Exchanges, measure_lone_link
from spbench_workers.benchmarks.link.patterns import draw_orders, make_ring
from spbench_workers.context import Context

_MESSAGES = 2


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(RingParams)
    world = context.world
    sizes = params.sizes
    smallest = sizes[0]
    largest = sizes[-1]

    exchanges = Exchanges(context, largest)
    named_orders = draw_orders(world.size, params.rings, context.seed_for("rings"))
    (first, *others) = [
        make_ring(order, world.rank, f"ring {name}") for name, order in named_orders
    ]
    small = [exchanges.time_pattern(pattern, smallest) for pattern in (first, *others)]
    large = [exchanges.sample_pattern(first, largest)]
    large += [exchanges.time_pattern(pattern, largest) for pattern in others]
    exchanges.free()
    context.check_worst("message", exchanges.difference)

    (latency, one_way), origin = measure_lone_link(context, [smallest, largest])

    if world.rank == 0:
        rates = [_MESSAGES * largest / seconds / 1e9 for seconds in large]
        context.metric("latency_us", small[0] * 1e6)
        context.metric("bandwidth_gb_s", rates[0])
        if others:
            context.metric("random_latency_us", fmean(small[1:]) * 1e6)
            context.metric("random_bandwidth_gb_s", fmean(rates[1:]))
        context.limit(
            "time_ms", _MESSAGES * one_way * 1e3, f"two messages of {largest} B, {origin}"
        )
        for name in ("latency_us", "random_latency_us")[: 1 + bool(others)]:
            context.limit(name, latency * 1e6, f"a message of {smallest} B, {origin}")
        for name in ("bandwidth_gb_s", "random_bandwidth_gb_s")[: 1 + bool(others)]:
            context.limit(name, largest / one_way / 1e9, f"a message of {largest} B, {origin}")
