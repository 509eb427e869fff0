"""The baseline: the same work on one process, where it fits in the time and memory for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from mpi4py import MPI

from spbench_core.catalog.typed_params import require_value
from spbench_core.durations import format_duration
from spbench_parallel.device.memory import release_memory
from spbench_parallel.device.streams import time_on_device
from spbench_parallel.engine import Engine
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.peak_memory import available_bytes
from spbench_parallel.plan import ModelPlan, TrainingConfig, put_on_one_process
from spbench_parallel.synthetic import synthetic_images
from spbench_workers.benchmarks.model.case import ModelCase
from spbench_workers.benchmarks.model.params import ModelParams
from spbench_workers.benchmarks.model.proxy_plan import ProxyPlan, count_images, estimate_cost
from spbench_workers.context import Context

MAX_STEPS = 5
"""Timed steps of the baseline: each takes as long as all ranks' work together."""
CHEAP_SECONDS = 0.3
MAX_CHEAP_STEPS = 50
"""Short steps are timed for this long, as predicted, and at most this often."""

PrepareEngine = Callable[[Engine], None]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Measurements of the ranks together.

    Attributes:
        seconds: Of a step, on the slowest rank.
        bytes: Memory that the ranks of one replica have used for it, together.
    """

    seconds: float
    bytes: float


def report_baseline(
    context: Context, case: ModelCase, measured: MeasuredRun, proxy: ProxyPlan, ready: PrepareEngine
) -> None:
    """Time the same work on rank 0 alone; report the speed-up over it. All ranks must call it.

    Where it would take more than ``baseline_max`` seconds or ``baseline_memory``, as predicted, it
    is not measured, and the report says why.

    Args:
        context: The case.
        case: The case that was timed.
        measured: What the ranks took.
        proxy: A smaller model, from whose time that of the case is predicted.
        ready: Called with a fresh engine, before it works.
    """
    world = context.world
    seconds = None
    why = ""
    if world.rank == 0:
        seconds, why = _alone(context, case, measured, proxy, ready)
        release_memory()
    sleep_at_barrier(world.comm)
    context.progress("baseline", 1, 1)
    seconds = world.comm.bcast(seconds)
    if seconds is None:
        if world.rank == 0:
            context.choice("baseline", "not measured", why)
        return
    by_one = case.plan.layout.replicas * seconds
    context.metric("sequential_ms", by_one * 1000.0)
    context.metric("speedup_vs_sequential", by_one / measured.seconds)
    context.metric("efficiency", by_one / measured.seconds / world.size)
    if world.rank == 0 and world.size > 1:
        by = (
            f"one process on the same images, {format_duration(by_one)}, "
            f"divided by {world.size} ranks"
        )
        context.limit("time_ms", by_one * 1000.0 / world.size, by)
        context.limit("images_per_second", case.images * world.size / by_one, by)


def _alone(
    context: Context, case: ModelCase, measured: MeasuredRun, proxy: ProxyPlan, ready: PrepareEngine
) -> tuple[float | None, str]:
    """Return the seconds of one replica's step; or None, and why it was not measured."""
    params = context.read_params(ModelParams)
    room = _room(context, case)
    seconds = require_value(params.baseline_max)
    if measured.bytes > room:
        return None, (
            f"the ranks together used {measured.bytes / 1e9:.1f} GB, and baseline_memory is "
            f"{room / 1e9:.1f} GB"
        )
    plan = put_on_one_process(case.plan)
    one = _Alone(context, put_on_one_process(proxy.plan), case.training, ready)
    small = one.median(1)
    scale = estimate_cost(plan.model, count_images(plan)) / estimate_cost(
        one.plan.model, count_images(one.plan)
    )
    predicted = small * scale
    if 2 * predicted > seconds:
        return None, (
            f"one process would take {predicted:.3g} s for a step, and two steps are more than "
            f"baseline_max, {seconds:g} s"
        )
    asked = params.iterations or MAX_STEPS
    predicted = max(predicted, 1e-9)
    cheap = min(MAX_CHEAP_STEPS, int(CHEAP_SECONDS / predicted))
    steps = min(max(cheap, min(MAX_STEPS, asked)), int(seconds / predicted) - 1)
    return _Alone(context, plan, case.training, ready).median(max(1, steps)), ""


def _room(context: Context, case: ModelCase) -> float:
    """Return the bytes that the baseline may take."""
    given = context.read_params(ModelParams).baseline_memory
    if given is not None:
        return float(given)
    return available_bytes(case.plan.device)


@dataclass(frozen=True, slots=True)
class _Alone:
    """One process that takes steps by itself."""

    context: Context
    plan: ModelPlan
    training: TrainingConfig | None
    ready: PrepareEngine

    def median(self, count: int) -> float:
        """Return the median of a few steps' seconds, after a first one."""
        plan = self.plan
        images = synthetic_images(plan, self.context.seed)
        engine = Engine(MPI.COMM_SELF, plan, images, self.training)
        self.ready(engine)
        work = engine.evaluate if self.training is None else engine.step
        seconds = []
        for done in range(1 + count):
            self.context.progress("baseline", done, 1 + count)
            seconds.append(time_on_device(plan.device, work))
        engine.free()
        return median(seconds[1:])
