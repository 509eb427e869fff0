"""Benchmark ``link.bisection``: each rank exchanges with one of the other half.

The first cut halves the ranks in order, which is the order of hosts. Further cuts are random.
"""

from __future__ import annotations

from spbench_workers.benchmarks.link.entry import BisectionParams
from spbench_workers.benchmarks.link.exchange import Exchanges, measure_lone_link
from spbench_workers.benchmarks.link.patterns import draw_orders, make_halves
from spbench_workers.context import Context


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(BisectionParams)
    world = context.world
    size = params.size
    exchanges = Exchanges(context, size)
    named_orders = draw_orders(world.size, params.cuts, context.seed_for("cuts"))
    (first, *others) = [
        make_halves(order, world.rank, f"halves {name}") for name, order in named_orders
    ]
    seconds_by_cut = [exchanges.sample_pattern(first, size)]
    seconds_by_cut += [exchanges.time_pattern(pattern, size) for pattern in others]
    exchanges.free()
    context.check_worst("message", exchanges.difference)
    (one_way,), origin = measure_lone_link(context, [size])
    if world.rank == 0:
        # Each pair sends one message in each direction.
        messages = 2 * (world.size // 2)
        context.metric("bandwidth_gb_s", messages * size / seconds_by_cut[0] / 1e9)
        context.metric("worst_bandwidth_gb_s", messages * size / max(seconds_by_cut) / 1e9)
        context.limit("time_ms", one_way * 1e3, f"a message of {size} B, {origin}")
        max_gb_per_second = messages * size / one_way / 1e9
        for name in ("bandwidth_gb_s", "worst_bandwidth_gb_s"):
            context.limit(
                name, max_gb_per_second, f"{messages} times a message of {size} B, {origin}"
            )
