"""Metrics of a model benchmark, and the plan of the same work on one process."""

from __future__ import annotations

from array import array
from dataclasses import replace

from spbench_core.layout.stages import model_layout
from spbench_core.schedule.simulation import play
from spbench_core.schedule.step import step_orders
from spbench_workers.context import Context
from spbench_workers.parallel.case import ModelCase
from spbench_workers.parallel.engine import Engine
from spbench_workers.parallel.plan import ModelPlan
from spbench_workers.spatial.conv import SpatialConv2d
from spbench_workers.spatial.overlap import overlaps_of
from spbench_workers.spatial.pool import TiledPool


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
    _give_overlap(context, engine)


def _give_overlap(context: Context, engine: Engine) -> None:
    """Report which of the two ways the first rank's operators over tiles take."""
    windows = [
        module.tiled
        for stage in engine.stages
        for module in stage.modules()
        if isinstance(module, SpatialConv2d | TiledPool)
    ]
    overlaps = overlaps_of([one.chosen for one in windows if one.chosen is not None])
    if overlaps is not None and context.world.rank == 0:
        context.choice("overlap", *overlaps)


def ideal_bubble(plan: ModelPlan, *, learns: bool) -> float:
    """Return the ideal bubble: the share of waiting where every stage takes equally long."""
    orders = step_orders(plan.layout, plan.batches, plan.schedule, forward_only=not learns)
    return play(plan.layout, orders).bubble


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
        recompute=None,
    )
