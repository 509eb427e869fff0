"""Metrics of a model benchmark, and its single-rank baseline: the same work on one process."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from mpi4py import MPI

from spbench_core.layout.stages import model_layout
from spbench_core.schedule.simulation import play
from spbench_core.schedule.step import step_orders
from spbench_workers.comm import rest
from spbench_workers.context import Context
from spbench_workers.device.streams import seconds_of
from spbench_workers.images.synthetic import SyntheticImages
from spbench_workers.parallel.case import ModelCase
from spbench_workers.parallel.engine import Engine
from spbench_workers.parallel.plan import ModelPlan

MOST_STEPS = 5
"""Timed steps of the single-rank baseline: each takes as long as all ranks' work together."""


def give_figures(context: Context, case: ModelCase, engine: Engine, times: array[float]) -> None:
    """Report the metrics that follow from the timed steps. All ranks must call it."""
    context.samples("images_per_second", [case.images / (time / 1000.0) for time in times])
    context.metric("parameters", case.plan.model.parameters)
    context.metric("ideal_bubble", ideal_bubble(case.plan, learns=case.training is not None))
    if case.training is not None:
        context.metric("loss", engine.loss())
        context.metric("skipped_steps", engine.arithmetic.skipped_steps)
    if case.plan.precision.int8:
        context.metric("int8_share", engine.arithmetic.int8_share())


def ideal_bubble(plan: ModelPlan, *, learns: bool) -> float:
    """Return the ideal bubble: the share of waiting where every stage takes equally long."""
    orders = step_orders(plan.layout, plan.batches, plan.schedule, forward_only=not learns)
    return play(plan.layout, orders).bubble


def give_sequential(
    context: Context, case: ModelCase, times: array[float], ready: Callable[[Engine], None]
) -> None:
    """Time the same work on rank 0 alone; report the speed-up over it. All ranks must call it.

    Args:
        context: The case.
        case: The case that was timed.
        times: This rank's times of the steps of all ranks together, in ms.
        ready: Called with a fresh engine, before it works.
    """
    world, replicas = context.world, case.plan.layout.replicas
    together = median([context.slowest(time) for time in times])
    context.progress("sequential", 0, 1)
    alone = 0.0
    if world.rank == 0:
        alone = replicas * _seconds_alone(context, case, ready) * 1000.0
    rest(world.comm)
    context.progress("sequential", 1, 1)
    alone = world.comm.bcast(alone)
    context.metric("sequential_ms", alone)
    context.metric("speedup_vs_sequential", alone / together)
    context.metric("efficiency", alone / together / world.size)
    if world.rank == 0 and world.size > 1:
        by = f"one process on the same images, over {world.size} ranks"
        context.limit("time_ms", alone / world.size, by)
        context.limit("images_per_second", 1000.0 * case.images * world.size / alone, by)


def _seconds_alone(context: Context, case: ModelCase, ready: Callable[[Engine], None]) -> float:
    """Return the seconds of one replica's step on one process: the median of a few."""
    plan = alone(case.plan)
    images = SyntheticImages(
        plan.model.image,
        context.params["num_classes"],
        seed=context.seed,
        dtype=plan.dtype,
        device=plan.device,
    )
    engine = Engine(MPI.COMM_SELF, plan, images, case.training)
    ready(engine)
    work = engine.evaluate if case.training is None else engine.step
    count = 1 + min(MOST_STEPS, context.params["iterations"] or MOST_STEPS)
    seconds = [seconds_of(plan.device, work) for _ in range(count)]
    engine.free()
    return median(seconds[1:])


def alone(plan: ModelPlan) -> ModelPlan:
    """Return the plan of the same micro-batches, of one replica, on one process."""
    return replace(
        plan,
        layout=model_layout(1),
        balance=(len(plan.model.layers),),
        batches=tuple(replace(batch, direction=0) for batch in plan.batches),
        schedule="1f1b",
        backend="mpi",
        master_comm=False,
        fused_layers=0,
        statistics="image",
    )
