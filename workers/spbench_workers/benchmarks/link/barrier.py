"""Benchmark ``link.barrier``: the time of a barrier over all ranks."""

from __future__ import annotations

import time
from math import ceil, log2

from spbench_workers.benchmarks.link.exchange import measure_lone_link
from spbench_workers.context import Context
from spbench_workers.timing import compute_calls_per_sample, measure, repeat_calls

_LATE = 0.05
"""Seconds by which one rank is late in a check."""
_MIN_WAIT_SHARE = 0.5
"""The share of `_LATE` that the other ranks must wait, because they may start late."""
_BYTES = 1


def run(context: Context) -> None:
    """Run the case."""
    world = context.world
    error_before = _measure_early_leave(context, "before")
    start = time.perf_counter()
    world.comm.Barrier()
    calls = compute_calls_per_sample(context.largest(time.perf_counter() - start))
    times_ms = measure(context, repeat_calls(world.comm.Barrier, calls), divide=calls)
    error, detail = max(error_before, _measure_early_leave(context, "after"))
    context.check("all-came", error, 0.0, detail)
    barrier_seconds = context.median_of_slowest(times_ms) / 1e3
    (one_way,), link_origin = measure_lone_link(context, [_BYTES])
    if world.rank == 0:
        context.metric("latency_us", barrier_seconds * 1e6)
        message_count = ceil(log2(world.size))
        messages_text = (
            "one message" if message_count == 1 else f"{message_count} messages one after another"
        )
        origin = f"{messages_text} of {_BYTES} B, as in a dissemination barrier, {link_origin}"
        context.limit("time_ms", message_count * one_way * 1e3, origin)
        context.limit("latency_us", message_count * one_way * 1e6, origin)


def _measure_early_leave(context: Context, phase: str) -> tuple[float, str]:
    """Delay one rank; return the seconds that this rank left too early, and a detail.

    The late rank is random, but never the one with an injected fault.
    """
    comm = context.world.comm
    world = context.world
    late_rank = context.seed_for("late", phase) % max(1, world.size - 1)
    if late_rank >= context.faulty_rank and world.size > 1:
        late_rank += 1
    comm.Barrier()
    start = time.perf_counter()
    if world.rank == late_rank:
        time.sleep(_LATE)
    # With the fault, a rank does not wait. It joins the barrier afterwards, so that none hangs.
    leaves_early = context.planted("leave-early")
    if not leaves_early:
        comm.Barrier()
    waited_seconds = time.perf_counter() - start
    if leaves_early:
        comm.Barrier()
    required_seconds = _LATE * _MIN_WAIT_SHARE
    if waited_seconds >= required_seconds:
        return 0.0, ""
    return (
        required_seconds - waited_seconds,
        f"left after {waited_seconds:.3g} s, not when rank {late_rank} came after {_LATE} s",
    )
