"""Orders of work in a step, for one pipeline or two mirrored ones on the same ranks (GEMS).

Mirrored gpipe takes one half of a pair after the other, as GEMS-MASTER does (Jain et al., SC20):
the forward wave of a direction starts on the rank where the backward wave of the other has begun,
and follows it over the ranks as it drains. A rank never holds more than one half's micro-batches.
Mirrored 1f1b lets both directions run at once: the idle times of one pipeline's ends are filled by
the other's. There is no short rule for it, so a step is simulated in a few orders, and the quickest
is taken; that may be one half after the other, where tiles bind many ranks together.

In all, weights change after the step alone, so that a rank holds the weights of its stages once,
and no older version. Every rank's order is a part of one order of all tasks in which each comes
after those that it needs, and after the receiver has taken the last but one message of its channel:
ranks that follow it cannot deadlock, if they leave `PENDING` sends unwaited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout
from spbench_core.schedule.list_scheduling import list_orders
from spbench_core.schedule.orders import (
    INTERLEAVED,
    Task,
    TaskOrder,
    interleaved_order,
    max_in_flight,
    stage_order,
)
from spbench_core.schedule.timeline import simulate_orders


def step_orders(
    layout: ModelLayout,
    batches: Sequence[MicroBatch],
    schedule: str,
    *,
    forward_only: bool = False,
) -> tuple[TaskOrder, ...]:
    """Return the order of tasks of each rank of a replica in a step.

    Args:
        layout: The ranks, of one pipeline, in one round or several, or of two mirrored ones.
        batches: The step's micro-batches, whose places in this list the tasks name.
        schedule: ``gpipe`` or ``1f1b``, and of one pipeline ``1f1b-deep`` or ``zb-h1``; of several
            rounds ``interleaved``.
        forward_only: Whether the step is inference, without backward passes.

    Raises:
        ValueError: There is no such schedule of the layout, or not of so many micro-batches.
    """
    if (schedule == INTERLEAVED) != (layout.rounds > 1):
        raise ValueError(f"schedule {schedule} is not for layouts of {layout.rounds} rounds")
    if schedule == INTERLEAVED:
        return _in_rounds(layout, len(batches), forward_only)
    by_runs = _by_runs(layout, batches, schedule, forward_only)
    if layout.mirrored and schedule == "1f1b":
        at_once = list_orders(layout, batches, forward_only=forward_only)
        return min(*at_once, by_runs, key=lambda orders: _cost(layout, orders))
    return by_runs


def _cost(layout: ModelLayout, orders: Sequence[TaskOrder]) -> tuple[float, int]:
    """Return the time of a step, and the micro-batches in flight, by which ties are broken."""
    return simulate_orders(layout, orders).length, max(map(max_in_flight, orders))


def _by_runs(
    layout: ModelLayout, batches: Sequence[MicroBatch], schedule: str, forward_only: bool
) -> tuple[TaskOrder, ...]:
    """Return orders in which one pipeline's micro-batches follow the other's, as listed."""
    orders: list[list[Task]] = [[] for _ in range(layout.ranks_per_replica)]
    runs = groupby(enumerate(batches), lambda item: (item[1].pair, item[1].direction))
    for (_, direction), run in runs:
        numbers = [index for index, _ in run]
        for rank, order in enumerate(orders):
            order += stage_order(
                schedule,
                layout.locate_rank(rank, direction).stage,
                len(layout.stages),
                numbers,
                direction=direction,
                forward_only=forward_only,
            )
    return tuple(map(tuple, orders))


def _in_rounds(layout: ModelLayout, batches: int, forward_only: bool) -> tuple[TaskOrder, ...]:
    """Return the orders of an interleaved pipeline."""
    return tuple(
        interleaved_order(
            layout.locate_rank(rank).stage,
            layout.stages_per_round,
            layout.rounds,
            range(batches),
            forward_only=forward_only,
        )
        for rank in range(layout.ranks_per_replica)
    )
