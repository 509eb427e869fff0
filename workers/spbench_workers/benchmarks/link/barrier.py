"""The benchmark ``link.barrier``: the time in which all ranks know that all have come."""

from __future__ import annotations

import time
from math import ceil, log2

from spbench_workers.benchmarks.link.exchange import measure_lone_link
from spbench_workers.context import Context
from spbench_workers.timing import calls_per_sample, measure, repeat_calls

_LATE = 0.05
"""Seconds by which one rank comes late in a check."""
_STAYS = 0.5
"""The share of it that the others must wait: they may be told late that the wait has begun."""
_BYTES = 1


def run(context: Context) -> None:
    """Run the case."""
    world = context.world
    before = _early(context, "before")
    start = time.perf_counter()
    world.comm.Barrier()
    calls = calls_per_sample(context.largest(time.perf_counter() - start))
    times = measure(context, repeat_calls(world.comm.Barrier, calls), divide=calls)
    error, detail = max(before, _early(context, "after"))
    context.check("all-came", error, 0.0, detail)
    seconds = context.median_of_slowest(times) / 1e3
    (one_way,), how = measure_lone_link(context, [_BYTES])
    if world.rank == 0:
        context.metric("latency_us", seconds * 1e6)
        steps = ceil(log2(world.size))
        messages = "one message" if steps == 1 else f"{steps} messages one after another"
        origin = f"{messages} of {_BYTES} B, as in a dissemination barrier, {how}"
        context.limit("time_ms", steps * one_way * 1e3, origin)
        context.limit("latency_us", steps * one_way * 1e6, origin)


def _early(context: Context, when: str) -> tuple[float, str]:
    """Let a rank come late; return the seconds by which this rank left too early, and words on it.

    The rank is drawn, but never the last one, on which faults are planted.
    """
    comm = context.world.comm
    world = context.world
    late = context.seed_for("late", when) % max(1, world.size - 1)
    comm.Barrier()
    start = time.perf_counter()
    if world.rank == late:
        time.sleep(_LATE)
    # A planted fault is a rank that has not waited; it joins the barrier afterwards.
    early = context.planted("leave-early")
    if not early:
        comm.Barrier()
    waited = time.perf_counter() - start
    if early:
        comm.Barrier()
    least = _LATE * _STAYS
    if waited >= least:
        return 0.0, ""
    return least - waited, f"left after {waited:.3g} s, not when rank {late} came after {_LATE} s"
