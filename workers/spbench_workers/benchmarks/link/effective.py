"""Benchmark ``link.effective``: a cluster's bandwidth over sizes and patterns.

It follows b_eff (Rabenseifner and Koniges, 2001). The bandwidth of a ring is the mean over message
sizes, so that short messages count. The result is the geometric mean of the ring in order and of
the mean of the random rings.
"""

from __future__ import annotations

from math import sqrt
from statistics import fmean

from spbench_workers.benchmarks.link.entry import EffectiveParams
from spbench_workers.benchmarks.link.exchange import Exchanges, measure_lone_link
from spbench_workers.benchmarks.link.patterns import Pattern, draw_orders, make_ring
from spbench_workers.context import Context

_MESSAGES = 2


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(EffectiveParams)
    world = context.world
    sizes = params.sizes

    exchanges = Exchanges(context, sizes[-1])
    named_orders = draw_orders(world.size, params.rings, context.seed_for("rings"))
    (first, *others) = [
        make_ring(order, world.rank, f"ring {name}") for name, order in named_orders
    ]
    largest_seconds = exchanges.sample_pattern(first, sizes[-1])
    ordered_gb_per_second = _compute_mean_rate(
        context, exchanges, first, sizes[:-1], largest_seconds
    )
    random_gb_per_second = [
        _compute_mean_rate(context, exchanges, pattern, sizes) for pattern in others
    ]
    exchanges.free()
    context.check_worst("message", exchanges.difference)

    one_way_seconds, origin = measure_lone_link(context, sizes)
    if world.rank == 0:
        gb_per_second_per_rank = sqrt(ordered_gb_per_second * fmean(random_gb_per_second))
        context.metric("per_rank_gb_s", gb_per_second_per_rank)
        context.metric("effective_gb_s", gb_per_second_per_rank * world.size)
        # Both messages of a rank leave over its single link, one after another.
        max_gb_per_second = fmean(
            size / seconds / 1e9 for size, seconds in zip(sizes, one_way_seconds, strict=True)
        )
        mean_origin = f"the mean over {len(sizes)} sizes, {origin}"
        context.limit(
            "time_ms",
            _MESSAGES * one_way_seconds[-1] * 1e3,
            f"two messages of {sizes[-1]} B, {origin}",
        )
        context.limit("per_rank_gb_s", max_gb_per_second, mean_origin)
        context.limit(
            "effective_gb_s", max_gb_per_second * world.size, f"{mean_origin}, for each rank"
        )


def _compute_mean_rate(
    context: Context,
    exchanges: Exchanges,
    pattern: Pattern,
    sizes: list[int],
    largest_seconds: float | None = None,
) -> float:
    """Return a rank's mean rate over sizes, in GB/s.

    ``largest_seconds`` are the seconds of the largest size, if they are already measured.
    """
    size_and_seconds = [(size, exchanges.time_pattern(pattern, size)) for size in sizes]
    if largest_seconds is not None:
        size_and_seconds.append((context.read_params(EffectiveParams).sizes[-1], largest_seconds))
    return fmean(_MESSAGES * size / seconds / 1e9 for size, seconds in size_and_seconds)
