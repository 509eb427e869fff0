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
    small_size = sizes[0]
    large_size = sizes[-1]

    exchanges = Exchanges(context, large_size)
    named_orders = draw_orders(world.size, params.rings, context.seed_for("rings"))
    (first, *others) = [
        make_ring(order, world.rank, f"ring {name}") for name, order in named_orders
    ]
    small_seconds = [exchanges.time_pattern(pattern, small_size) for pattern in (first, *others)]
    large_seconds = [exchanges.sample_pattern(first, large_size)]
    large_seconds += [exchanges.time_pattern(pattern, large_size) for pattern in others]
    exchanges.free()
    context.check_worst("message", exchanges.difference)

    (small_one_way, large_one_way), origin = measure_lone_link(context, [small_size, large_size])

    if world.rank == 0:
        gb_per_second = [_MESSAGES * large_size / seconds / 1e9 for seconds in large_seconds]
        context.metric("latency_us", small_seconds[0] * 1e6)
        context.metric("bandwidth_gb_s", gb_per_second[0])
        if others:
            context.metric("random_latency_us", fmean(small_seconds[1:]) * 1e6)
            context.metric("random_bandwidth_gb_s", fmean(gb_per_second[1:]))
        context.limit(
            "time_ms", _MESSAGES * large_one_way * 1e3, f"two messages of {large_size} B, {origin}"
        )
        for name in ("latency_us", "random_latency_us")[: 1 + bool(others)]:
            context.limit(name, small_one_way * 1e6, f"a message of {small_size} B, {origin}")
        for name in ("bandwidth_gb_s", "random_bandwidth_gb_s")[: 1 + bool(others)]:
            context.limit(
                name, large_size / large_one_way / 1e9, f"a message of {large_size} B, {origin}"
            )
