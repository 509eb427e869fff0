"""Orders of tasks in a step, for one or two mirrored pipelines (GEMS).

Mirrored gpipe runs the halves of a pair one after the other, like GEMS-MASTER (Jain et al., SC20).
The forward wave of a direction starts on the rank where the backward wave of the other has begun,
and follows it over the ranks. A rank never holds the micro-batches of more than one half.

Mirrored 1f1b runs both directions at the same time, so that each fills the idle times of the other.
There is no simple rule for it. Therefore a step is simulated in a few orders, and the fastest is
chosen. That may be one half after the other, if tiles make many ranks wait for each other.

Weights change only after the step, so that a rank needs one version of its weights. The orders of
all ranks are parts of one order of all tasks. In it each task comes after those that it needs, and
after the receiver has accepted the last message but one of its channel. Therefore ranks cannot
deadlock if they allow `MAX_PENDING_SENDS` unfinished sends.
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
    count_max_in_flight,
    list_interleaved_tasks,
    list_stage_tasks,
)
from spbench_core.schedule.timeline import simulate_orders


def list_step_orders(
    layout: ModelLayout,
    batches: Sequence[MicroBatch],
    schedule: str,
    *,
    forward_only: bool = False,
) -> tuple[TaskOrder, ...]:
    """Return the order of tasks of each rank of a replica in a step.

    Args:
        layout: The ranks of one pipeline, with one or several rounds, or of two mirrored ones.
        batches: The step's micro-batches; tasks name their indices.
        schedule: ``gpipe`` or ``1f1b``; for one pipeline also ``1f1b-deep`` or ``zb-h1``; for
            several rounds ``interleaved``.
        forward_only: Whether the step is inference, without backward passes.

    Raises:
        ValueError: The schedule does not support the layout or the number of micro-batches.
    """
    if (schedule == INTERLEAVED) != (layout.rounds > 1):
        raise ValueError(f"schedule {schedule} is not for layouts of {layout.rounds} rounds")
    if schedule == INTERLEAVED:
        return _order_rounds(layout, len(batches), forward_only)
    sequential_orders = _order_halves(layout, batches, schedule, forward_only)
    if layout.mirrored and schedule == "1f1b":
        concurrent_orders = list_orders(layout, batches, forward_only=forward_only)
        return min(
            *concurrent_orders, sequential_orders, key=lambda orders: _measure_cost(layout, orders)
        )
    return sequential_orders


def _measure_cost(layout: ModelLayout, orders: Sequence[TaskOrder]) -> tuple[float, int]:
    """Return the time of a step, and the micro-batches in flight to break ties."""
    return simulate_orders(layout, orders).length, max(map(count_max_in_flight, orders))


def _order_halves(
    layout: ModelLayout, batches: Sequence[MicroBatch], schedule: str, forward_only: bool
) -> tuple[TaskOrder, ...]:
    """Return orders in which micro-batches follow each other as listed."""
    orders: list[list[Task]] = [[] for _ in range(layout.ranks_per_replica)]
    halves = groupby(enumerate(batches), lambda numbered: (numbered[1].pair, numbered[1].direction))
    for (_, direction), numbered_batches in halves:
        micro_batches = [index for index, _ in numbered_batches]
        for rank, order in enumerate(orders):
            order += list_stage_tasks(
                schedule,
                layout.locate_rank(rank, direction).stage,
                len(layout.stages),
                micro_batches,
                direction=direction,
                forward_only=forward_only,
            )
    return tuple(map(tuple, orders))


def _order_rounds(layout: ModelLayout, batches: int, forward_only: bool) -> tuple[TaskOrder, ...]:
    """Return the orders of an interleaved pipeline."""
    return tuple(
        list_interleaved_tasks(
            layout.locate_rank(rank).stage,
            layout.stages_per_round,
            layout.rounds,
            range(batches),
            forward_only=forward_only,
        )
        for rank in range(layout.ranks_per_replica)
    )
