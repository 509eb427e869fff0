"""Baseline: the same work on one process, within a limit of time and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from mpi4py import MPI

from spbench_core.catalog.typed_params import require_value
from spbench_core.number_text import format_duration
from spbench_parallel.device.memory import release_memory
from spbench_parallel.device.streams import time_on_device
from spbench_parallel.engine import Engine
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.peak_memory import available_bytes
from spbench_parallel.plan import ModelPlan, TrainingConfig, put_on_one_process
from spbench_parallel.validation.reference import make_synthetic_images
from spbench_workers.benchmarks.model.case import ModelCase
from spbench_workers.benchmarks.model.params import ModelParams
from spbench_workers.benchmarks.model.proxy_plan import ProxyPlan, count_images, estimate_cost
from spbench_workers.context import Context

MAX_STEPS = 5
"""Most timed steps of the baseline, which each take as long as all ranks' work together."""
CHEAP_SECONDS = 0.3
MAX_CHEAP_STEPS = 50
"""Predicted seconds and most steps of a baseline with short steps."""

PrepareEngine = Callable[[Engine], None]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Measurements of all ranks.

    Attributes:
        seconds: The seconds of a step on the slowest rank.
        bytes: The memory that the ranks of one replica used together.
    """

    seconds: float
    bytes: float


def report_baseline(
    context: Context,
    case: ModelCase,
    measured: MeasuredRun,
    proxy: ProxyPlan,
    prepare: PrepareEngine,
) -> None:
    """Time the same work on rank 0, and report the speed-up. All ranks must call it.

    If the prediction exceeds ``baseline_max`` seconds or ``baseline_memory``, the baseline is not
    measured, and the reason is reported.

    Args:
        context: The case.
        case: The case that was timed.
        measured: The measurements of the ranks.
        proxy: A smaller model, which is timed to predict the time of the case.
        prepare: Called with a fresh engine, before it works.
    """
    world = context.world
    replica_seconds = None
    reason = ""
    if world.rank == 0:
        replica_seconds, reason = _measure_or_explain(context, case, measured, proxy, prepare)
        release_memory()
    sleep_at_barrier(world.comm)
    context.progress("baseline", 1, 1)
    replica_seconds = world.comm.bcast(replica_seconds)
    if replica_seconds is None:
        if world.rank == 0:
            context.choice("baseline", "not measured", reason)
        return
    one_process_seconds = case.plan.layout.replicas * replica_seconds
    context.metric("sequential_ms", one_process_seconds * 1000.0)
    context.metric("speedup_vs_sequential", one_process_seconds / measured.seconds)
    context.metric("efficiency", one_process_seconds / measured.seconds / world.size)
    if world.rank == 0 and world.size > 1:
        origin = (
            f"one process on the same images, {format_duration(one_process_seconds)}, "
            f"divided by {world.size} ranks"
        )
        context.limit("time_ms", one_process_seconds * 1000.0 / world.size, origin)
        context.limit("images_per_second", case.images * world.size / one_process_seconds, origin)


def _measure_or_explain(
    context: Context,
    case: ModelCase,
    measured: MeasuredRun,
    proxy: ProxyPlan,
    prepare: PrepareEngine,
) -> tuple[float | None, str]:
    """Return the seconds of one replica's step, or None and the reason."""
    params = context.read_params(ModelParams)
    memory_limit = _find_memory_limit(context, case)
    max_seconds = require_value(params.baseline_max)
    if measured.bytes > memory_limit:
        return None, (
            f"the ranks together used {measured.bytes / 1e9:.1f} GB, and baseline_memory is "
            f"{memory_limit / 1e9:.1f} GB"
        )

    plan = put_on_one_process(case.plan)
    small_process = _OneProcess(context, put_on_one_process(proxy.plan), case.training, prepare)
    small_seconds = small_process.median(1)
    cost = estimate_cost(plan.model, count_images(plan))
    small_plan = small_process.plan
    small_cost = estimate_cost(small_plan.model, count_images(small_plan))
    predicted_seconds = small_seconds * (cost / small_cost)
    if 2 * predicted_seconds > max_seconds:
        return None, (
            f"one process would take {predicted_seconds:.3g} s for a step, and two steps "
            f"are more than baseline_max, {max_seconds:g} s"
        )

    requested_steps = params.iterations or MAX_STEPS
    predicted_seconds = max(predicted_seconds, 1e-9)
    cheap_steps = min(MAX_CHEAP_STEPS, int(CHEAP_SECONDS / predicted_seconds))
    steps = min(
        max(cheap_steps, min(MAX_STEPS, requested_steps)), int(max_seconds / predicted_seconds) - 1
    )
    return _OneProcess(context, plan, case.training, prepare).median(max(1, steps)), ""


def _find_memory_limit(context: Context, case: ModelCase) -> float:
    """Return the bytes that the baseline may use."""
    baseline_memory = context.read_params(ModelParams).baseline_memory
    if baseline_memory is not None:
        return float(baseline_memory)
    return available_bytes(case.plan.device)


@dataclass(frozen=True, slots=True)
class _OneProcess:
    """A process that runs steps without other ranks."""

    context: Context
    plan: ModelPlan
    training: TrainingConfig | None
    prepare: PrepareEngine

    def median(self, steps: int) -> float:
        """Return the median seconds of ``steps`` steps after a warm-up step."""
        plan = self.plan
        images = make_synthetic_images(plan, self.context.seed)
        engine = Engine(MPI.COMM_SELF, plan, images, self.training)
        self.prepare(engine)
        run_step = engine.evaluate if self.training is None else engine.step
        seconds = []
        for done in range(1 + steps):
            self.context.progress("baseline", done, 1 + steps)
            seconds.append(time_on_device(plan.device, run_step))
        engine.free()
        return median(seconds[1:])
