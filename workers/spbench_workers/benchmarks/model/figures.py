"""Metrics of a model benchmark that follow from its timed steps."""

from __future__ import annotations

from array import array

from spbench_core.schedule.step import step_orders
from spbench_core.schedule.timeline import simulate_orders
from spbench_parallel.engine import Engine
from spbench_parallel.memory_shares import Activations, parameter_bytes
from spbench_parallel.plan import ModelPlan
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.overlap import summarize_overlap
from spbench_parallel.spatial.pool import TiledPool
from spbench_workers.benchmarks.model.case import ModelCase
from spbench_workers.context import Context


def report_figures(context: Context, case: ModelCase, engine: Engine, times: array[float]) -> None:
    """Report the metrics that follow from the timed steps. All ranks must call it."""
    context.samples("images_per_second", [case.images / (time / 1000.0) for time in times])
    context.metric("parameters", case.plan.model.parameters)
    context.metric(
        "ideal_bubble", compute_ideal_bubble(case.plan, learns=case.training is not None)
    )
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
    overlaps = summarize_overlap(
        [one.last_choice for one in windows if one.last_choice is not None]
    )
    if overlaps is not None and context.world.rank == 0:
        context.choice("overlap", *overlaps)


def report_memory(context: Context, engine: Engine, activations: Activations) -> None:
    """Report the shares, in 10^6 bytes. All ranks must call it."""
    if activations.peak is not None:
        context.metric("activation_mb", activations.peak / 1e6)
    context.metric("parameter_mb", parameter_bytes(engine) / 1e6)
    context.metric("halo_mb", COMM_STATS.buffer_bytes / 1e6)
    context.metric("message_mb", sum(runner.io.buffer_bytes for runner in engine.runners) / 1e6)


def compute_ideal_bubble(plan: ModelPlan, *, learns: bool) -> float:
    """Return the ideal bubble: the share of waiting where every stage takes equally long."""
    orders = step_orders(plan.layout, plan.batches, plan.schedule, forward_only=not learns)
    return simulate_orders(plan.layout, orders).bubble
