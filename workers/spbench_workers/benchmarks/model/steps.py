"""The timed steps of a model, with the time and traffic of each."""

from __future__ import annotations

from array import array
from collections import deque

from spbench_core.schedule.step import step_orders
from spbench_core.schedule.timeline import simulate_orders
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.engine import Engine, Logits
from spbench_parallel.images.sources import ImageSource
from spbench_parallel.memory_shares import Activations, parameter_bytes
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
"""Phases that are reported under their names; waits are the bubble."""
MAX_JUDGED_STEPS = 50
"""The most steps of which the answers are kept."""
MAX_LOGIT_BYTES = 1 << 26
"""The bytes of logits that are kept, of at least one step: those of pixels are many."""


class Steps:
    """One step after another, all ranks beginning each of them together.

    Args:
        engine: The model.
        images: The images of training or inference.
        begun: Number of steps trained before.
        warmup: Number of steps before the first epoch; in the first of them activations are
            counted, where the model learns. Of inference all of them take the images of
            the first timed step, so that what is timed and judged begins with the first images.

    Attributes:
        activations: The activations of this rank.
    """

    def __init__(self, engine: Engine, images: ImageSource, begun: int, warmup: int) -> None:
        self.activations = Activations(engine.stages)
        self._engine = engine
        self._images = images
        self._next = begun
        self._begun = begun
        self._first = begun + warmup
        self._seconds: list[dict[str, float]] = []
        self._totals: list[float] = []
        self._traffic: list[tuple[int, int]] = []
        self._gathered: list[float] = []
        self._answers: deque[tuple[int, Logits]] = deque(maxlen=_judged(engine.plan))

    def run_step(self) -> None:
        """Take a step."""
        engine = self._engine
        phases = self._engine.phases
        before = dict(phases.seconds)
        total = phases.total
        sent = self._sent()
        gathered = GATHERED_TIME.seconds
        with phases.measure_step(), phases.measure("wait"):
            engine.world.Barrier()
        number = self._next if engine.trainer is not None else self._inferred_now()
        self._images.set_step(number)
        if self._next == self._first:
            engine.begin_epoch()
        if engine.trainer is None:
            self._answers.append((number, engine.evaluate()))
        elif self._next == self._begun < self._first:
            with self.activations.count():
                engine.step()
        else:
            engine.step()
        self._next += 1
        self._seconds.append({name: phases.seconds[name] - before[name] for name in PHASES})
        self._totals.append(phases.total - total)
        self._gathered.append(GATHERED_TIME.seconds - gathered)
        now = self._sent()
        self._traffic.append((now[0] - sent[0], now[1] - sent[1]))

    def _inferred_now(self) -> int:
        """Return the number of the step whose images are inferred now."""
        return self._begun + max(0, self._next - self._first)

    def list_answers(self, count: int) -> list[tuple[int, Logits]]:
        """Return the last ``count`` steps, each with its logits.

        They are `MOST_JUDGED` at most, and together of `MOST_BYTES`: alike on all ranks.
        """
        return list(self._answers)[-count:]

    def _sent(self) -> tuple[int, int]:
        """Return bytes and messages that this rank has sent so far, of all kinds."""
        engine = self._engine
        count = engine.bytes_sent + COMM_STATS.bytes
        messages = engine.messages_sent + COMM_STATS.messages
        if engine.trainer is not None:
            learnt = engine.trainer.traffic
            count += learnt.sum_bytes + learnt.master_comm_bytes
            messages += learnt.sums + learnt.master_comm_messages
        return count, messages

    def report(self, context: Context, count: int) -> None:
        """Report the phases and the traffic of the last ``count`` steps."""
        seconds = self._seconds[-count:]
        totals = self._totals[-count:]
        for phase in SAMPLED_PHASES:
            context.samples(f"{phase}_ms", [step[phase] * 1000.0 for step in seconds])
        context.samples("bubble_ms", [step["wait"] * 1000.0 for step in seconds])
        shares = zip(seconds, totals, strict=True)
        context.samples("bubble", [step["wait"] / total for step, total in shares])
        if any(self._gathered[-count:]) and not is_gpu(self._engine.plan.device):
            context.samples("gathered_ms", [one * 1000.0 for one in self._gathered[-count:]])
        context.metric("bytes_sent", self._traffic[-1][0])
        context.metric("messages_sent", self._traffic[-1][1])
        summing = (
            describe_gradient_sum(self._engine.plan) if self._engine.trainer is not None else ""
        )
        if summing and context.world.rank == 0:
            context.choice("gradient_sum", summing, f"backend {self._engine.plan.backend}")


def _judged(plan: ModelPlan) -> int:
    """Return of how many steps the answers are kept: one at least."""
    images = sum(batch.size for batch in plan.batches)
    each = images * plan.model.flows[-1][0].values * plan.dtype.itemsize
    return max(1, min(MAX_JUDGED_STEPS, MAX_LOGIT_BYTES // max(1, each)))


def describe_gradient_sum(plan: ModelPlan) -> str:
    """Return the allreduce of a GPU's gradients, in words; nothing on the host, or without one."""
    directions = (plan.owner,) if plan.master_comm else plan.layout.directions
    if not is_gpu(plan.device) or not sums_gradients(plan.layout, directions):
        return ""
    return "NCCL" if plan.backend == "nccl" else "pinned memory and MPI"


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
