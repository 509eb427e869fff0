"""Timed steps of a model with their time and traffic, and metrics from them."""

from __future__ import annotations

from array import array
from collections import deque

from spbench_core.schedule.step import list_step_orders
from spbench_core.schedule.timeline import simulate_orders
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.engine import Engine, Logits
from spbench_parallel.images.sources import ImageSource
from spbench_parallel.memory_shares import Activations, count_parameter_bytes
from spbench_parallel.pipeline.phases import PHASES
from spbench_parallel.plan import ModelPlan
from spbench_parallel.spatial.comm_stats import COMM_STATS, GATHERED_TIME
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.overlap import summarize_overlap
from spbench_parallel.spatial.pool import TiledPool
from spbench_parallel.training.gradients import sums_gradients
from spbench_workers.benchmarks.model.case import ModelCase
from spbench_workers.context import Context

SAMPLED_PHASES = ("forward", "backward", "exchange", "join", "allreduce", "optimizer")
"""Phases reported under their names; waits are the bubble."""
MAX_JUDGED_STEPS = 50
"""The most steps with kept answers."""
MAX_LOGIT_BYTES = 1 << 26
"""The most bytes of kept logits; the logits of at least one step are kept."""


class Steps:
    """Successive steps, which all ranks begin together.

    Args:
        engine: The model.
        images: The images of training or inference.
        trained_before: Number of steps trained before.
        warmup: Number of steps before the first epoch. In training, activations are counted in the
            first one. In inference, all of them use the images of the first timed step, so that
            timed answers begin with the first images.

    Attributes:
        activations: The activations of this rank.
    """

    def __init__(
        self, engine: Engine, images: ImageSource, trained_before: int, warmup: int
    ) -> None:
        self.activations = Activations(engine.stages)
        self._engine = engine
        self._images = images
        self._next_step = trained_before
        self._trained_before = trained_before
        self._first_timed_step = trained_before + warmup
        self._phase_seconds: list[dict[str, float]] = []
        self._step_seconds: list[float] = []
        self._traffic_by_step: list[tuple[int, int]] = []
        self._gathered_seconds: list[float] = []
        self._answers: deque[tuple[int, Logits]] = deque(maxlen=_count_judged_steps(engine.plan))

    def run_step(self) -> None:
        """Run one step."""
        engine = self._engine
        phases = self._engine.phases
        seconds_before = dict(phases.seconds)
        total_before = phases.total
        sent_before = self._count_sent()
        gathered_before = GATHERED_TIME.seconds

        with phases.measure_step(), phases.measure("wait"):
            engine.world.Barrier()

        step_number = self._next_step if engine.trainer is not None else self._find_inferred_step()
        self._images.set_step(step_number)
        if self._next_step == self._first_timed_step:
            engine.begin_epoch()
        if engine.trainer is None:
            self._answers.append((step_number, engine.evaluate()))
        elif self._next_step == self._trained_before < self._first_timed_step:
            with self.activations.count():
                engine.step()
        else:
            engine.step()

        self._next_step += 1
        self._phase_seconds.append(
            {name: phases.seconds[name] - seconds_before[name] for name in PHASES}
        )
        self._step_seconds.append(phases.total - total_before)
        self._gathered_seconds.append(GATHERED_TIME.seconds - gathered_before)
        sent_now = self._count_sent()
        self._traffic_by_step.append((sent_now[0] - sent_before[0], sent_now[1] - sent_before[1]))

    def _find_inferred_step(self) -> int:
        """Return the number of the step with the images to infer now."""
        return self._trained_before + max(0, self._next_step - self._first_timed_step)

    def list_answers(self, count: int) -> list[tuple[int, Logits]]:
        """Return the last ``count`` steps, each with its logits.

        There are at most `MAX_JUDGED_STEPS`, with at most `MAX_LOGIT_BYTES` together, the same on
        all ranks.
        """
        return list(self._answers)[-count:]

    def _count_sent(self) -> tuple[int, int]:
        """Return all bytes and messages that this rank has sent so far."""
        engine = self._engine
        byte_count = engine.bytes_sent + COMM_STATS.bytes
        message_count = engine.messages_sent + COMM_STATS.messages
        if engine.trainer is not None:
            traffic = engine.trainer.traffic
            byte_count += traffic.sum_bytes + traffic.master_comm_bytes
            message_count += traffic.sums + traffic.master_comm_messages
        return byte_count, message_count

    def report(self, context: Context, step_count: int) -> None:
        """Report the phases and the traffic of the last ``step_count`` steps."""
        phase_seconds = self._phase_seconds[-step_count:]
        totals = self._step_seconds[-step_count:]
        for phase in SAMPLED_PHASES:
            context.samples(f"{phase}_ms", [step[phase] * 1000.0 for step in phase_seconds])
        context.samples("bubble_ms", [step["wait"] * 1000.0 for step in phase_seconds])
        pairs = zip(phase_seconds, totals, strict=True)
        context.samples("bubble", [step["wait"] / total for step, total in pairs])
        if any(self._gathered_seconds[-step_count:]) and not is_gpu(self._engine.plan.device):
            context.samples(
                "gathered_ms",
                [seconds * 1000.0 for seconds in self._gathered_seconds[-step_count:]],
            )
        context.metric("bytes_sent", self._traffic_by_step[-1][0])
        context.metric("messages_sent", self._traffic_by_step[-1][1])
        summing = (
            describe_gradient_sum(self._engine.plan) if self._engine.trainer is not None else ""
        )
        if summing and context.world.rank == 0:
            context.choice("gradient_sum", summing, f"backend {self._engine.plan.backend}")


def _count_judged_steps(plan: ModelPlan) -> int:
    """Return the number of steps with kept answers, at least one."""
    images = sum(batch.size for batch in plan.batches)
    step_bytes = images * plan.model.flows[-1][0].values * plan.dtype.itemsize
    return max(1, min(MAX_JUDGED_STEPS, MAX_LOGIT_BYTES // max(1, step_bytes)))


def describe_gradient_sum(plan: ModelPlan) -> str:
    """Describe the allreduce of a GPU's gradients; empty without one or on the host."""
    directions = (plan.owner,) if plan.master_comm else plan.layout.directions
    if not is_gpu(plan.device) or not sums_gradients(plan.layout, directions):
        return ""
    return "NCCL" if plan.backend == "nccl" else "pinned memory and MPI"


def report_figures(
    context: Context, case: ModelCase, engine: Engine, times_ms: array[float]
) -> None:
    """Report the metrics that follow from the timed steps. All ranks must call it."""
    context.samples("images_per_second", [case.images / (ms / 1000.0) for ms in times_ms])
    context.metric("parameters", case.plan.model.parameters)
    context.metric(
        "ideal_bubble", compute_ideal_bubble(case.plan, learns=case.training is not None)
    )
    if case.training is not None:
        context.metric("loss", engine.loss())
        context.metric("skipped_steps", engine.arithmetic.skipped_steps)
    if case.plan.precision.int8:
        context.metric("int8_share", engine.arithmetic.int8_share())
    _report_overlap(context, engine)


def _report_overlap(context: Context, engine: Engine) -> None:
    """Report whether the first rank's operators over tiles overlap their exchange."""
    windows = [
        module.tiled
        for stage in engine.stages
        for module in stage.modules()
        if isinstance(module, SpatialConv2d | TiledPool)
    ]
    overlaps = summarize_overlap(
        [window.last_choice for window in windows if window.last_choice is not None]
    )
    if overlaps is not None and context.world.rank == 0:
        context.choice("overlap", *overlaps)


def report_memory(context: Context, engine: Engine, activations: Activations) -> None:
    """Report the shares of memory in 10^6 bytes. All ranks must call it."""
    if activations.peak is not None:
        context.metric("activation_mb", activations.peak / 1e6)
    context.metric("parameter_mb", count_parameter_bytes(engine) / 1e6)
    context.metric("halo_mb", COMM_STATS.buffer_bytes / 1e6)
    context.metric("message_mb", sum(runner.io.buffer_bytes for runner in engine.runners) / 1e6)


def compute_ideal_bubble(plan: ModelPlan, *, learns: bool) -> float:
    """Return the share of waiting if all stages take equally long."""
    orders = list_step_orders(plan.layout, plan.batches, plan.schedule, forward_only=not learns)
    return simulate_orders(plan.layout, orders).bubble
