"""The benchmark ``link.effective``: one bandwidth of a whole cluster, over sizes and patterns.

As b_eff (Rabenseifner and Koniges, 2001): the bandwidth of a ring is the mean over the sizes of
messages, so that short ones count; that of all, the mean of logs of the ring in order and of the
mean of the random rings.
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
    drawn = draw_orders(world.size, params.rings, context.seed_for("rings"))
    (first, *others) = [make_ring(order, world.rank, f"ring {name}") for name, order in drawn]
    largest = exchanges.sample_pattern(first, sizes[-1])
    in_order = _mean_rate(context, exchanges, first, sizes[:-1], largest)
    at_random = [_mean_rate(context, exchanges, pattern, sizes) for pattern in others]
    exchanges.free()
    context.check_worst("message", exchanges.difference)
    alone, how = measure_lone_link(context, sizes)
    if world.rank == 0:
        per_rank = sqrt(in_order * fmean(at_random))
        context.metric("per_rank_gb_s", per_rank)
        context.metric("effective_gb_s", per_rank * world.size)
        # Both messages of a rank leave by its one link, one after another.
        limit = fmean(size / seconds / 1e9 for size, seconds in zip(sizes, alone, strict=True))
        told = f"the mean over {len(sizes)} sizes, {how}"
        context.limit(
            "time_ms", _MESSAGES * alone[-1] * 1e3, f"two messages of {sizes[-1]} B, {how}"
        )
        context.limit("per_rank_gb_s", limit, told)
        context.limit("effective_gb_s", limit * world.size, f"{told}, for each rank")


def _mean_rate(
    context: Context,
    exchanges: Exchanges,
    pattern: Pattern,
    sizes: list[int],
    largest: float | None = None,
) -> float:
    """Return a rank's mean rate over sizes in GB/s; ``largest``: the known seconds of the last."""
    known = [] if largest is None else [(context.read_params(EffectiveParams).sizes[-1], largest)]
    timed = [(size, exchanges.time_pattern(pattern, size)) for size in sizes]
    return fmean(_MESSAGES * size / seconds / 1e9 for size, seconds in (*timed, *known))
