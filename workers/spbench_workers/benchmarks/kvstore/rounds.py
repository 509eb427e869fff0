"""Timed rounds of a case; batch 0 is dropped, and others are reported in groups."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from mpi4py import MPI

from spbench_core.events.rank_events import BATCH_INTERVAL
from spbench_core.events.statuses import Activity
from spbench_workers.benchmarks.kvstore.params import PushPullParams
from spbench_workers.context import Context
from spbench_workers.timing import MAX_BATCH, time_batch


@dataclass(frozen=True, slots=True)
class RoundGroup:
    """Rounds that are reported together.

    Attributes:
        batch: The number of the last round; 0 is the dropped one.
        rounds: The number of rounds.
        seconds: The mean time of a round on its slowest rank.
    """

    batch: int
    rounds: int
    seconds: float


def measure_rounds(
    context: Context, round_: Callable[[], None], after_group: Callable[[RoundGroup], None]
) -> array[float]:
    """Run batch 0 and the timed rounds; return the slowest rank's times in ms.

    Ranks begin each group together, and run it in batches like `timing.measure`. If
    ``disp_batches`` does not divide ``num_batches``, the last group is shorter.

    Args:
        context: The case with ``num_batches`` and ``disp_batches``.
        round_: Runs one round, and returns when its work is done.
        after_group: Called after each group, by all ranks, outside the timed rounds.
    """
    params = context.read_params(PushPullParams)
    round_count = params.num_batches
    group_size = params.disp_batches
    round_seconds = _time_first(context, round_)
    after_group(RoundGroup(0, 1, round_seconds))
    body = context.with_fault(round_, round_seconds)
    times_ms = array("d", bytes(8 * round_count))
    slowest_ms = array("d", bytes(8 * round_count))
    context.progress(Activity.TIMING, 0, round_count)
    for first in range(0, round_count, group_size):
        last = min(first + group_size, round_count)
        round_seconds = _time_group(context, body, times_ms, first, last, round_seconds)
        group_ms = np.frombuffer(slowest_ms)[first:last]
        context.world.comm.Allreduce(np.frombuffer(times_ms)[first:last], group_ms, MPI.MAX)
        after_group(RoundGroup(last, last - first, float(group_ms.mean()) / 1000.0))
    return slowest_ms


def _time_first(context: Context, round_: Callable[[], None]) -> float:
    context.progress(Activity.WARMUP, 0, 1)
    context.world.comm.Barrier()
    start = perf_counter()
    round_()
    return context.largest(perf_counter() - start)


def _time_group(
    context: Context,
    body: Callable[[], object],
    times_ms: array[float],
    first: int,
    last: int,
    round_seconds: float,
) -> float:
    """Time rounds ``first`` to before ``last``; return the slowest mean seconds."""
    rounds_done = first
    while rounds_done < last:
        batch_size = min(MAX_BATCH, max(1, int(BATCH_INTERVAL / round_seconds)), last - rounds_done)
        context.world.comm.Barrier()
        time_batch(body, times_ms, rounds_done, batch_size, 1000.0)
        context.samples("time_ms", times_ms[rounds_done : rounds_done + batch_size])
        round_seconds = context.largest(
            sum(times_ms[rounds_done : rounds_done + batch_size]) / batch_size / 1000.0
        )
        rounds_done += batch_size
        context.progress(Activity.TIMING, rounds_done, len(times_ms))
    return round_seconds
