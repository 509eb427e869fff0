"""Checks of one step of the model at full size, on its own ranks and in its own number format.

Beyond a step of the run, a rank needs room for one operator at a time: in float64, for the region
of one image that a window reads and makes, with gradients, or some blocks of 2 MiB of a batch
normalisation; in 16 bits also for all that an operator of one rank reads and makes, with gradients.

- ``operators``: each operator over tiles, and each batch normalisation over ranks, is computed
  again on each rank, forward and back, with borders and sums that came another way. In 16 bits each
  other operator is too, from the very values that it had, and the loss: errors do not go from one
  to the next, so that they can be held against what rounding does.
- ``scales``: the scale of each tensor that was computed again is 1, as far as rounding lets it be.
- ``joints``: what a stage got is what the stage before, or after, had.
- ``sums``: each gradient is the sum over micro-batches, members, mirrors and replicas.
- ``updates``: weights change as the optimizer changes them by these sums in float64.

Where every operator does what the whole image asks for, every joint passes on what it has, and
every gradient is its sum, the step is that of the model on one process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import RankCoordinates
from spbench_core.schedule.orders import ZERO_BUBBLE
from spbench_parallel.engine import Engine
from spbench_parallel.full_size.bound import OperatorErrors, Rounding, new_worst_ratio
from spbench_parallel.full_size.gradient_sums import GradientSums
from spbench_parallel.full_size.hooks import OperatorCheck, OperatorHooks
from spbench_parallel.full_size.learning import ExactLoss, LossCheck, UpdateCheck
from spbench_parallel.full_size.plain import PlainCheck, PlainOperator
from spbench_parallel.full_size.stage_boundaries import BoundaryChecksums
from spbench_parallel.full_size.whole_image import NormCheck, WholeImageCheck
from spbench_parallel.full_size.windows import WindowCheck
from spbench_parallel.groups import create_group
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.plain_modules import find_used_once, is_plain_torch
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import FP32
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.spatial.all_gather import AllGather
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.fetched.box import FetchingOperator
from spbench_parallel.spatial.fused.blocks import FusedBlock, FusedSequential
from spbench_parallel.spatial.global_pool import SpatialGlobalAvgPool2d
from spbench_parallel.spatial.group_norm import SpatialGroupNorm
from spbench_parallel.spatial.pixelwise import PixelwiseOperator
from spbench_parallel.spatial.pool import TiledPool
from spbench_parallel.spatial.redistribute import Redistribute
from spbench_parallel.spatial.replicated import OwnTile, ReplicatedValues
from spbench_parallel.spatial.tile_buffer import PaddedReLU
from spbench_parallel.verify.worst_error import WorstError


class OperatorKind(Enum):
    """The way in which an operator over tiles is computed again."""

    WINDOW = "window"
    NORM = "norm"
    WHOLE_IMAGE = "whole image"


CHECKED_AS: Mapping[type[nn.Module], OperatorKind] = {
    SpatialConv2d: OperatorKind.WINDOW,
    TiledPool: OperatorKind.WINDOW,
    nn.BatchNorm2d: OperatorKind.NORM,
    SpatialGlobalAvgPool2d: OperatorKind.WHOLE_IMAGE,
    AllGather: OperatorKind.WHOLE_IMAGE,
}
"""The check of each operator over tiles, which its subclasses have, too."""
_AT_SMALL_SIZE = "compared with one process at a small size"
NOT_CHECKED: Mapping[type[nn.Module], str] = {
    FetchingOperator: _AT_SMALL_SIZE,
    SpatialGroupNorm: _AT_SMALL_SIZE,
    PixelwiseOperator: _AT_SMALL_SIZE,
    FusedBlock: _AT_SMALL_SIZE,
    FusedSequential: _AT_SMALL_SIZE,
    PaddedReLU: "each pixel by itself",
    Redistribute: "moves pixels, and computes nothing",
    OwnTile: "moves pixels, and computes nothing",
    ReplicatedValues: "passes values on as they are",
}
"""The operators over tiles that the step at full size does not compute again, with the reason."""
_ALL_PLAIN = (PlainOperator, nn.BatchNorm2d)
MULTIPLYING = (nn.Conv2d, nn.Linear)
"""Operators that sum products."""
_PARAMETERS = 20
"""Parameters whose sums, or updates, are checked in the time of one operator, about."""
FULL_SCALE = 2.0**8
"""The scale of the loss in fp16: at the usual one the first steps are often skipped."""


def full_size_plan(plan: ModelPlan) -> ModelPlan:
    """Return the plan of the step that is checked.

    Over NCCL a check would wait for a GPU whose receives are posted, so messages go by MPI. In int8
    it is the fp32 around it. Nothing is computed again: each operator is seen once.
    """
    precision = FP32 if plan.precision.int8 else plan.precision
    backend = "mpi" if plan.backend == "nccl" else plan.backend
    return replace(plan, precision=precision, backend=backend, recompute=None)


@dataclass(frozen=True, slots=True)
class StepErrors:
    """The errors of a step, by kind, each over its bound."""

    operators: OperatorErrors = field(default_factory=OperatorErrors)
    stage_boundaries: WorstError = field(default_factory=lambda: WorstError.with_tolerance(0.0))
    sums: WorstError = field(default_factory=new_worst_ratio)
    updates: WorstError = field(default_factory=new_worst_ratio)

    def by_name(self) -> dict[str, WorstError]:
        """Return them by the names of their checks."""
        return {
            "operators": self.operators.single,
            "scales": self.operators.scales,
            "joints": self.stage_boundaries,
            "sums": self.sums,
            "updates": self.updates,
        }


class StepCheck:
    """The check of an engine's first step.

    All ranks must make it, and run it, together.

    Args:
        engine: The engine, with the faults that are planted.
        training: None for inference.
        errors: Take in the errors.
        names: The checks to make.
        every: Whether all operators of one rank are checked too; None: only in 16 bits. Otherwise
            only those that multiply are, and only in training.
    """

    def __init__(
        self,
        engine: Engine,
        training: TrainingConfig | None,
        errors: StepErrors,
        names: Collection[str],
        *,
        every: bool | None = None,
    ) -> None:
        self._every = engine.plan.precision.rounds_maps if every is None else every
        self._plain = self._every or training is not None
        self._engine = engine
        self._training = training
        self._errors = errors
        if engine.arithmetic.loss_scale is not None:
            engine.arithmetic.loss_scale.value = FULL_SCALE
        self._comms: list[MPI.Intracomm] = []
        self._layers: list[Any] = []
        self._losses: list[LossCheck] = []
        self._checks: list[tuple[nn.Module, OperatorCheck]] = []
        self.calls = 0
        for place, stage in zip(engine.coordinates, engine.stages, strict=True):
            if "operators" in names:
                found = list(self._checks_of(place, stage))
                self._checks += found
                batches = self._batches(place)
                self.calls += sum(self._most(check) or batches for _, check in found)
            passes = 1 if training is None else 2
            self.calls += passes * len(list(stage.children())) * self._batches(place)
            if training is not None:  # sums and updates
                self.calls += 2 * len(list(stage.parameters())) // _PARAMETERS

    def run(self, progress: Progress = NO_PROGRESS) -> None:
        """Take a step, and compare.

        Args:
            progress: The progress over this rank's `calls` of operators.
        """
        engine = self._engine
        errors = self._errors
        learns = self._training is not None
        hooks = [self._hooked(*one, progress) for one in self._checks]
        for stage in engine.stages:
            self._watch_layers(stage, progress, learns=learns)
        self._watch_losses()
        joints = BoundaryChecksums(engine.plan)
        sums = GradientSums(engine) if learns else None
        for place, runner in zip(engine.coordinates, engine.runners, strict=True):
            joints.watch(place, runner)
        updates = None if self._training is None else UpdateCheck(engine, self._training)
        if learns:
            engine.step()
        else:
            engine.evaluate()
        for end in (
            *(one.remove for one in (*hooks, *self._layers)),
            *(one.finish for one in self._losses),
        ):
            end()
        for comm in self._comms:
            comm.Free()
        joints.compare(engine.world, errors.stage_boundaries)
        if sums is not None:
            sums.compare(errors.sums, progress, 1 / _PARAMETERS)
            sums.remove()
        if updates is not None:
            updates.compare(errors.updates, progress, 1 / _PARAMETERS)

    def _hooked(self, module: nn.Module, check: OperatorCheck, progress: Progress) -> OperatorHooks:
        later = self._engine.plan.schedule == ZERO_BUBBLE and isinstance(module, nn.Conv2d)
        learns = self._training is not None
        most = self._most(check)
        return OperatorHooks(
            module, check, progress, learns=learns, defers_weight_grad=later, max_calls=most
        )

    def _most(self, check: OperatorCheck) -> int | None:
        """Return the number of micro-batches for which an operator is checked; None: all.

        Operators of one rank compute the same for each, and their check takes several times as long
        as the step. In more than 16 bits only the first micro-batch is checked.
        """
        return 1 if isinstance(check, PlainCheck) and not self._every else None

    def _batches(self, place: RankCoordinates) -> int:
        return sum(batch.direction == place.direction for batch in self._engine.plan.batches)

    def _watch_losses(self) -> None:
        engine = self._engine
        plan = engine.plan
        last = len(engine.plan.layout.stages) - 1
        if self._training is None or not self._every:
            return
        images = sum(batch.size for batch in plan.batches)
        for place, runner in zip(engine.coordinates, engine.runners, strict=True):
            if place.stage == last:
                tiles = None
                if plan.model.is_segmentation and plan.layout.stages[last].spatial:
                    ranks = plan.layout.list_stage_ranks(last, place.replica, place.direction)
                    tiles = self._comm(ranks)
                loss = ExactLoss(plan.loss, plan.model.targets_per_image, tiles)
                words = f"stage {place.stage}", runner, loss, images, engine.arithmetic.scale
                self._losses.append(LossCheck(*words, self._errors.operators))

    def _watch_layers(self, stage: nn.Module, progress: Progress, *, learns: bool) -> None:
        """Have progress told at each layer too: between few operators a long time may pass."""

        def leave(_: nn.Module, __: object, found: Any) -> None:
            progress.advance()
            first = found if isinstance(found, torch.Tensor) else found[0]
            if learns and first.requires_grad:
                first.register_hook(lambda _: progress.advance())

        self._layers += [layer.register_forward_hook(leave) for layer in stage.children()]

    def _checks_of(
        self, place: RankCoordinates, stage: nn.Module
    ) -> Iterator[tuple[nn.Module, OperatorCheck]]:
        plan = self._engine.plan
        layout = self._engine.plan.layout
        own = layout.stages[place.stage]
        replicas = range(layout.replicas)
        together = [layout.list_stage_ranks(place.stage, one, place.direction) for one in replicas]
        beside = self._comm(together[place.replica])
        normed = beside
        first = 0
        if plan.statistics == "replicas":
            normed = self._comm([rank for ranks in together for rank in ranks])
            first = place.replica * own.ranks
        if plan.fused_layers and own.spatial:
            return
        sharers = range(first, first + own.ranks) if own.spatial else [normed.rank]
        multiplying = Rounding.from_precision(plan.precision)
        errors = self._errors.operators
        plain = dict(own_operators(plan, stage, every=self._every)) if self._plain else {}
        for name, module in stage.named_modules():
            words = f"stage {place.stage}, {name}"
            rounding = (
                multiplying if isinstance(module, MULTIPLYING) else multiplying.without_factors
            )
            kind = next((CHECKED_AS[of] for of in CHECKED_AS if isinstance(module, of)), None)
            if kind is OperatorKind.WINDOW:
                assert isinstance(module, SpatialConv2d | TiledPool), "as the table has it"
                yield module, WindowCheck(words, module, beside, plan.dtype, rounding, errors)
            elif kind is OperatorKind.NORM and (name in plain or normed.size > 1):
                assert isinstance(module, nn.BatchNorm2d), "as the table has it"
                yield module, NormCheck(words, module, normed, list(sharers), rounding, errors)
            elif kind is OperatorKind.WHOLE_IMAGE:
                assert isinstance(module, SpatialGlobalAvgPool2d | AllGather), "as the table has it"
                yield module, WholeImageCheck(words, module, beside, rounding, errors)
            elif name in plain:
                assert isinstance(module, PlainOperator), "normalisations come above"
                yield (
                    module,
                    PlainCheck(words, module, plan.dtype, rounding, errors, biases=self._every),
                )

    def _comm(self, ranks: list[int] | tuple[int, ...]) -> MPI.Intracomm:
        comm = create_group(self._engine.world, ranks)
        self._comms.append(comm)
        return comm


def own_operators(
    plan: ModelPlan, stage: nn.Module, *, every: bool
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the operators of a stage that one rank computes alone, with their names.

    Args:
        plan: The model.
        stage: The rank's part of it.
        every: Whether all of them are checked, or only those that multiply.
    """
    kinds = _ALL_PLAIN if every else MULTIPLYING
    plain = [pair for pair in stage.named_modules() if isinstance(pair[1], kinds)]
    if not isinstance(plan.model, ImportedModel):
        yield from plain
        return
    alone = find_used_once(stage)
    yield from (
        (name, module) for name, module in plain if module in alone and is_plain_torch(module)
    )
