"""Checks of one step of the model at full size, on its own ranks and in its own number format.

No rank needs to hold more than in a step of the run, and the regions of one operator in float64.

- ``operators``: each operator over tiles, and each batch normalisation over ranks, is computed
  again on each rank, forward and back, with borders and sums that came another way.
- ``joints``: what a stage got is what the stage before, or after, had.
- ``sums``: each gradient is the sum over micro-batches, members, mirrors and replicas.

Where every operator does what the whole image asks for, every joint passes on what it has, and
every gradient is its sum, the step is that of the model on one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import Place
from spbench_workers.context import Context
from spbench_workers.images.synthetic import SyntheticImages
from spbench_workers.parallel.engine import Engine
from spbench_workers.parallel.full_size.bound import Rounding, WorstError
from spbench_workers.parallel.full_size.gradient_sums import GradientSums
from spbench_workers.parallel.full_size.hooks import OperatorCheck, OperatorHooks
from spbench_workers.parallel.full_size.joints import JointSums
from spbench_workers.parallel.full_size.whole_image import NormCheck, WholeImageCheck
from spbench_workers.parallel.full_size.windows import WindowCheck
from spbench_workers.parallel.pipeline.building import group_of
from spbench_workers.parallel.plan import ModelPlan, TrainingConfig
from spbench_workers.parallel.precision.formats import FP32
from spbench_workers.parallel.validation.progress import Progress
from spbench_workers.spatial.all_gather import AllGather
from spbench_workers.spatial.conv import SpatialConv2d
from spbench_workers.spatial.global_pool import SpatialGlobalAvgPool2d
from spbench_workers.spatial.pool import TiledPool

FULL_SCALE = 2.0**8
"""The scale of the loss in fp16: at the usual one the first steps are often skipped."""


def full_size_plan(plan: ModelPlan) -> ModelPlan:
    """Return the plan of the step that is checked.

    Over NCCL a check would wait for a GPU whose receives are posted, so messages go by MPI. In int8
    it is the fp32 around it.
    """
    precision = FP32 if plan.precision.int8 else plan.precision
    backend = "mpi" if plan.backend == "nccl" else plan.backend
    return replace(plan, precision=precision, backend=backend)


def check_full_size(
    context: Context,
    plan: ModelPlan,
    training: TrainingConfig | None,
    spoil: Callable[[Context, Engine], None],
) -> None:
    """Take a step, and check it. All ranks must call it.

    Args:
        context: The case.
        plan: The model at full size.
        training: None for inference.
        spoil: Plants the fault that ``--inject`` asks for.
    """
    learns = training is not None
    names = context.entry.checks_of(context.params)
    images = SyntheticImages(
        plan.model.image,
        context.params["num_classes"],
        seed=context.seed_for("full size"),
        dtype=plan.dtype,
        device=plan.device,
    )
    engine = Engine(context.world.comm, plan, images, training)
    if engine.arithmetic.loss_scale is not None:
        engine.arithmetic.loss_scale.value = FULL_SCALE
    spoil(context, engine)
    operators, joints, sums = WorstError(), WorstError(), WorstError()
    watch = _Watch(context, engine, operators, learns=learns, checked="operators" in names)
    joint_sums, gradients = JointSums(plan), GradientSums(engine) if learns else None
    for place, runner in zip(engine.places, engine.runners, strict=True):
        joint_sums.watch(place, runner)
    if learns:
        engine.step()
    else:
        engine.evaluate()
    watch.finish()
    joint_sums.compare(context.world.comm, joints)
    if gradients is not None:
        gradients.compare(sums)
        gradients.remove()
    engine.free()
    tolerances = {"operators": (operators, 1.0), "joints": (joints, 0.0), "sums": (sums, 1.0)}
    for name, (worst, tolerance) in tolerances.items():
        if name in names:
            context.check(name, worst.error, tolerance, worst.where)


class _Watch:
    """The hooks on all operators of a rank's stages."""

    def __init__(
        self, context: Context, engine: Engine, worst: WorstError, *, learns: bool, checked: bool
    ) -> None:
        self._engine, self._worst = engine, worst
        self._comms: list[MPI.Intracomm] = []
        self._layers: list[Any] = []
        found: list[tuple[nn.Module, OperatorCheck]] = []
        parts = 1
        for place, stage in zip(engine.places, engine.stages, strict=True):
            operators = list(self._checks_of(place, stage)) if checked else []
            found += operators
            calls = len(operators) + (2 if learns else 1) * len(list(stage.children()))
            parts += calls * sum(one.direction == place.direction for one in engine.plan.batches)
        self._progress = Progress(context, "check", parts)
        for stage in engine.stages:
            self._watch_layers(stage, self._progress.advance, learns=learns)
        self._hooks = [
            OperatorHooks(module, check, self._progress.advance, learns=learns)
            for module, check in found
        ]

    def finish(self) -> None:
        """Take the hooks away, and free the communicators. All ranks must call it."""
        for hook in (*self._hooks, *self._layers):
            hook.remove()
        for comm in self._comms:
            comm.Free()
        self._progress.finish()

    def _watch_layers(self, stage: nn.Module, advance: Callable[[], None], *, learns: bool) -> None:
        """Have progress told at each layer too: between few operators a long time may pass."""

        def leave(_: nn.Module, __: object, found: Any) -> None:
            advance()
            first = found if isinstance(found, torch.Tensor) else found[0]
            if learns and first.requires_grad:
                first.register_hook(lambda _: advance())

        self._layers += [layer.register_forward_hook(leave) for layer in stage.children()]

    def _checks_of(
        self, place: Place, stage: nn.Module
    ) -> Iterator[tuple[nn.Module, OperatorCheck]]:
        plan, layout = self._engine.plan, self._engine.plan.layout
        own = layout.stages[place.stage]
        replicas = range(layout.replicas)
        together = [layout.ranks_of(place.stage, one, place.direction) for one in replicas]
        beside = self._comm(together[place.replica])
        normed, first = beside, 0
        if plan.statistics == "replicas":
            normed = self._comm([rank for ranks in together for rank in ranks])
            first = place.replica * own.ranks
        sharers = range(first, first + own.ranks) if own.spatial else [normed.rank]
        rounding, worst = Rounding.of(plan.precision), self._worst
        for name, module in stage.named_modules():
            words = f"stage {place.stage}, {name}"
            if isinstance(module, SpatialConv2d | TiledPool):
                yield module, WindowCheck(words, module, beside, plan.dtype, rounding, worst)
            elif isinstance(module, nn.BatchNorm2d) and normed.size > 1:
                yield module, NormCheck(words, module, normed, list(sharers), rounding, worst)
            elif isinstance(module, SpatialGlobalAvgPool2d | AllGather):
                yield module, WholeImageCheck(words, module, beside, rounding, worst)

    def _comm(self, ranks: list[int] | tuple[int, ...]) -> MPI.Intracomm:
        comm = group_of(self._engine.world, ranks)
        self._comms.append(comm)
        return comm
