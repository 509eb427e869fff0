"""Checks of one step of the model at full size, on its ranks.

In addition to a step of the run, a rank needs memory for one operator at a time. In float64 this is
the region of one image that a window reads and writes, with gradients, or some blocks of 2 MiB of a
batch normalisation. In 16 bits it is also the input and output of an operator of one rank, with
gradients.

- ``operators``: each tiled operator, and each batch normalisation over ranks, is computed again on
  each rank, forward and backward, with borders and sums that are sent separately. In 16 bits each
  other operator and the loss are computed again, too, from the same input values. So errors do not
  propagate between operators, and can be compared with rounding errors.
- ``scales``: the scale of each recomputed tensor is 1, up to rounding.
- ``joints``: a stage received the values that the previous, or the next, stage had.
- ``sums``: each gradient is the sum over micro-batches, members, mirrors and replicas.
- ``updates``: weights change like in the optimizer's update by these sums in float64.

If every operator is correct for the whole image, every stage boundary passes its values on, and
every gradient is its sum, then the step is that of the model on one process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import RankCoordinates
from spbench_core.schedule.orders import ZERO_BUBBLE
from spbench_parallel.engine import Engine
from spbench_parallel.full_size.bound import Rounding
from spbench_parallel.full_size.calls import OperatorCheck, StepErrors
from spbench_parallel.full_size.gradient_sums import GradientSums
from spbench_parallel.full_size.hooks import OperatorHooks
from spbench_parallel.full_size.learning import ExactLoss, LossCheck, UpdateCheck
from spbench_parallel.full_size.norms import NormCheck
from spbench_parallel.full_size.plain import (
    MULTIPLYING,
    PlainCheck,
    PlainOperator,
    list_plain_operators,
)
from spbench_parallel.full_size.stage_boundaries import BoundaryChecksums
from spbench_parallel.full_size.whole_image import WholeImageCheck
from spbench_parallel.full_size.windows import WindowCheck
from spbench_parallel.groups import create_group
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import FP32
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.fetched.box import FetchingOperator
from spbench_parallel.spatial.fused.blocks import FusedBlock, FusedSequential
from spbench_parallel.spatial.gradients import PixelwiseOperator
from spbench_parallel.spatial.group_norm import SpatialGroupNorm
from spbench_parallel.spatial.pool import TiledPool
from spbench_parallel.spatial.redistribute import Redistribute
from spbench_parallel.spatial.replicated import (
    AllGather,
    OwnTile,
    ReplicatedValues,
    SpatialGlobalAvgPool2d,
)
from spbench_parallel.spatial.tile_buffer import PaddedReLU


class CheckMethod(Enum):
    """The way in which a tiled operator is computed again."""

    WINDOW = "window"
    NORM = "norm"
    WHOLE_IMAGE = "whole image"


CHECKED_AS: Mapping[type[nn.Module], CheckMethod] = {
    SpatialConv2d: CheckMethod.WINDOW,
    TiledPool: CheckMethod.WINDOW,
    nn.BatchNorm2d: CheckMethod.NORM,
    SpatialGlobalAvgPool2d: CheckMethod.WHOLE_IMAGE,
    AllGather: CheckMethod.WHOLE_IMAGE,
}
"""The check of each tiled operator and its subclasses."""
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
"""Tiled operators that the step at full size does not compute again, with the reason."""
# The sums, or updates, of this many parameters take about as long as the check of one operator.
_STEP_PARAMETERS = 20
FULL_SCALE = 2.0**8
"""The scale of the loss in fp16: at the initial one the first steps are often skipped."""


def full_size_plan(plan: ModelPlan) -> ModelPlan:
    """Return the plan of the step that is checked.

    Over NCCL a check would wait for a GPU with posted receives, so that messages go by MPI. An int8
    plan is checked in fp32, the format of everything but its convolutions. There is no
    recomputation, since each operator must run once.
    """
    precision = FP32 if plan.precision.int8 else plan.precision
    backend = "mpi" if plan.backend == "nccl" else plan.backend
    return replace(plan, precision=precision, backend=backend, recompute=None)


class StepCheck:
    """The check of an engine's first step. All ranks must create and run it together.

    Args:
        engine: The engine, with injected faults if any.
        training: None for inference.
        errors: Collects the errors.
        names: The checks to make.
        checks_all: Whether all operators of one rank are checked, too (default: only in 16 bits).
            Otherwise only those that multiply are, and only in training.

    Attributes:
        calls: The number of steps of the progress on this rank.
    """

    def __init__(
        self,
        engine: Engine,
        training: TrainingConfig | None,
        errors: StepErrors,
        names: Collection[str],
        *,
        checks_all: bool | None = None,
    ) -> None:
        self._checks_all = engine.plan.precision.rounds_maps if checks_all is None else checks_all
        self._checks_plain = self._checks_all or training is not None
        self._engine = engine
        self._training = training
        self._errors = errors
        if engine.arithmetic.loss_scale is not None:
            engine.arithmetic.loss_scale.value = FULL_SCALE
        self._comms: list[MPI.Intracomm] = []
        self._layer_handles: list[Any] = []
        self._loss_checks: list[LossCheck] = []
        self._checks: list[tuple[nn.Module, OperatorCheck]] = []
        self.calls = 0
        for coordinates, stage in zip(engine.coordinates, engine.stages, strict=True):
            if "operators" in names:
                checks = list(self._create_checks(coordinates, stage))
                self._checks += checks
                batch_count = self._count_batches(coordinates)
                self.calls += sum(self._max_calls(check) or batch_count for _, check in checks)
            passes_per_batch = 1 if training is None else 2
            self.calls += (
                passes_per_batch * len(list(stage.children())) * self._count_batches(coordinates)
            )
            if training is not None:  # one pass for sums, one for updates
                self.calls += 2 * len(list(stage.parameters())) // _STEP_PARAMETERS

    def run(self, progress: Progress = NO_PROGRESS) -> None:
        """Run a step, and compare.

        Args:
            progress: The progress over this rank's `calls`.
        """
        engine = self._engine
        errors = self._errors
        learns = self._training is not None

        hooks = [self._install_hooks(module, check, progress) for module, check in self._checks]
        for stage in engine.stages:
            self._watch_layers(stage, progress, learns=learns)
        self._watch_losses()
        checksums = BoundaryChecksums(engine.plan)
        sums = GradientSums(engine) if learns else None
        for coordinates, runner in zip(engine.coordinates, engine.runners, strict=True):
            checksums.watch(coordinates, runner)
        updates = None if self._training is None else UpdateCheck(engine, self._training)

        if learns:
            engine.step()
        else:
            engine.evaluate()

        # Hooks check calls that still wait for gradients when they are removed, over communicators
        # that are freed afterwards.
        for hook in (*hooks, *self._layer_handles):
            hook.remove()
        for loss_check in self._loss_checks:
            loss_check.finish()
        for comm in self._comms:
            comm.Free()

        checksums.compare(engine.world, errors.stage_boundaries)
        if sums is not None:
            sums.compare(errors.gradient_sums, progress, 1 / _STEP_PARAMETERS)
            sums.remove()
        if updates is not None:
            updates.compare(errors.weight_updates, progress, 1 / _STEP_PARAMETERS)

    def _install_hooks(
        self, module: nn.Module, check: OperatorCheck, progress: Progress
    ) -> OperatorHooks:
        defers_weight_grad = self._engine.plan.schedule == ZERO_BUBBLE and isinstance(
            module, nn.Conv2d
        )
        return OperatorHooks(
            module,
            check,
            progress,
            learns=self._training is not None,
            defers_weight_grad=defers_weight_grad,
            max_calls=self._max_calls(check),
        )

    def _max_calls(self, check: OperatorCheck) -> int | None:
        """Return the number of micro-batches for which an operator is checked.

        The result is None for all. Operators of one rank compute the same for each, and their check
        takes several times as long as the step. With more than 16 bits only the first micro-batch
        is checked.
        """
        return 1 if isinstance(check, PlainCheck) and not self._checks_all else None

    def _count_batches(self, coordinates: RankCoordinates) -> int:
        return sum(batch.direction == coordinates.direction for batch in self._engine.plan.batches)

    def _watch_losses(self) -> None:
        engine = self._engine
        plan = engine.plan
        last_stage = len(engine.plan.layout.stages) - 1
        if self._training is None or not self._checks_all:
            return
        image_count = sum(batch.size for batch in plan.batches)
        for coordinates, runner in zip(engine.coordinates, engine.runners, strict=True):
            if coordinates.stage != last_stage:
                continue
            tiles = None
            if plan.model.is_segmentation and plan.layout.stages[last_stage].spatial:
                ranks = plan.layout.list_stage_ranks(
                    last_stage, coordinates.replica, coordinates.direction
                )
                tiles = self._create_comm(ranks)
            self._loss_checks.append(
                LossCheck(
                    f"stage {coordinates.stage}",
                    runner,
                    ExactLoss(plan.loss, plan.model.targets_per_image, tiles),
                    image_count,
                    engine.arithmetic.scale,
                    self._errors.operators,
                )
            )

    def _watch_layers(self, stage: nn.Module, progress: Progress, *, learns: bool) -> None:
        """Report progress after each layer, too, since there may be few checked operators."""

        def advance_progress(_: nn.Module, __: object, output: Any) -> None:
            progress.advance()
            first_output = output if isinstance(output, torch.Tensor) else output[0]
            if learns and first_output.requires_grad:
                first_output.register_hook(lambda _: progress.advance())

        self._layer_handles += [
            layer.register_forward_hook(advance_progress) for layer in stage.children()
        ]

    def _create_checks(
        self, coordinates: RankCoordinates, stage: nn.Module
    ) -> Iterator[tuple[nn.Module, OperatorCheck]]:
        plan = self._engine.plan
        layout = plan.layout
        layout_stage = layout.stages[coordinates.stage]
        ranks_by_replica = [
            layout.list_stage_ranks(coordinates.stage, replica, coordinates.direction)
            for replica in range(layout.replicas)
        ]
        # All ranks create their communicators, including those without any check.
        stage_comm = self._create_comm(ranks_by_replica[coordinates.replica])
        norm_comm = stage_comm
        first_rank = 0
        if plan.statistics == "replicas":
            norm_comm = self._create_comm([rank for ranks in ranks_by_replica for rank in ranks])
            first_rank = coordinates.replica * layout_stage.rank_count
        if plan.fused_layers and layout_stage.spatial:
            return

        sharing_ranks = (
            range(first_rank, first_rank + layout_stage.rank_count)
            if layout_stage.spatial
            else [norm_comm.rank]
        )
        product_rounding = Rounding.from_precision(plan.precision)
        errors = self._errors.operators
        plain_operators = (
            dict(list_plain_operators(plan, stage, checks_all=self._checks_all))
            if self._checks_plain
            else {}
        )

        for name, module in stage.named_modules():
            label = f"stage {coordinates.stage}, {name}"
            rounding = (
                product_rounding
                if isinstance(module, MULTIPLYING)
                else product_rounding.without_factors
            )
            method = next(
                (method for type_, method in CHECKED_AS.items() if isinstance(module, type_)), None
            )
            if method is CheckMethod.WINDOW:
                assert isinstance(module, SpatialConv2d | TiledPool), "by CHECKED_AS"
                yield module, WindowCheck(label, module, stage_comm, plan.dtype, rounding, errors)
            elif method is CheckMethod.NORM and (name in plain_operators or norm_comm.size > 1):
                assert isinstance(module, nn.BatchNorm2d), "by CHECKED_AS"
                yield (
                    module,
                    NormCheck(label, module, norm_comm, list(sharing_ranks), rounding, errors),
                )
            elif method is CheckMethod.WHOLE_IMAGE:
                assert isinstance(module, SpatialGlobalAvgPool2d | AllGather), "by CHECKED_AS"
                yield module, WholeImageCheck(label, module, stage_comm, rounding, errors)
            elif name in plain_operators:
                assert isinstance(module, PlainOperator), "normalisations have a branch above"
                yield (
                    module,
                    PlainCheck(
                        label, module, plan.dtype, rounding, errors, biases=self._checks_all
                    ),
                )

    def _create_comm(self, ranks: list[int] | tuple[int, ...]) -> MPI.Intracomm:
        comm = create_group(self._engine.world, ranks)
        self._comms.append(comm)
        return comm
