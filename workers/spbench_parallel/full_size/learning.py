"""Checks of the loss of a rank's logits, and of the update of its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from mpi4py import MPI
from torch import nn
from torch.nn import functional

from spbench_parallel.engine import Engine
from spbench_parallel.full_size.bound import (
    Rounding,
    ScaleError,
    split_into_blocks,
)
from spbench_parallel.full_size.calls import OperatorErrors
from spbench_parallel.pipeline.stage_runner import StageRunner
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.training.updates import Optimizer
from spbench_parallel.verify.worst_error import WorstError

# Last bits that the few sums and roundings of a loss, or of an update, may be off.
_SUM_SLACK = 16.0


@dataclass(frozen=True, slots=True)
class ExactLoss:
    """The loss of logits in float64, with a separate sum over tiles.

    Attributes:
        name: ``cross_entropy`` or ``dice``.
        pixels: Pixels per image that have a class; 1 if the image has one class.
        tiles: The ranks with the other pixels, used only by these checks; None without tiles.
    """

    name: str
    pixels: int
    tiles: MPI.Intracomm | None

    @property
    def shares(self) -> int:
        """The number of ranks that have an equal part of the loss from `compute`."""
        return 1 if self.name == "cross_entropy" or self.tiles is None else self.tiles.size

    def compute(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss over images: of this rank, or for Dice of all tiles."""
        if self.name == "cross_entropy":
            return functional.cross_entropy(logits, targets, reduction="sum") / self.pixels
        predicted = logits.softmax(1).flatten(2)
        expected = torch.zeros_like(predicted).scatter_(1, targets.flatten(1)[:, None], 1.0)
        overlap = self._sum_over_tiles((predicted * expected).sum(2))
        total = self._sum_over_tiles(predicted.sum(2)) + self._sum_over_tiles(expected.sum(2))
        return (1 - (2 * overlap + 1) / (total + 1)).mean(1).sum()

    def _sum_over_tiles(self, local: torch.Tensor) -> torch.Tensor:
        """Return the sum over all tiles, differentiable by this rank's part."""
        if self.tiles is None:
            return local
        parts = self.tiles.allgather(local.detach().cpu())
        other_parts = [part for rank, part in enumerate(parts) if rank != self.tiles.rank]
        return local + sum(other_parts).to(local.device) if other_parts else local


class LossCheck:
    """The check of a last stage's losses, and of their gradients for the logits.

    Args:
        name: The stage's name.
        runner: The runner of the stage.
        loss: The loss in float64.
        images: Images of the replica's step, over which the loss is a mean.
        scale: The scale of the loss.
        errors: Collects the errors.
    """

    def __init__(
        self,
        name: str,
        runner: StageRunner,
        loss: ExactLoss,
        images: int,
        scale: float,
        errors: OperatorErrors,
    ) -> None:
        self._name = name
        self._runner = runner
        self._loss = loss
        self._errors = errors
        self._image_share = 1.0 / images
        self._scale = scale
        self._expected_loss = 0.0
        self._handle: Any = runner.module.register_forward_hook(self._check_logits)
        self._forward = runner.forward
        self._micro_batch = 0
        runner.forward = self._run_forward  # type: ignore[method-assign]

    def finish(self) -> None:
        """Compare the step's loss, and remove the hook."""
        self._handle.remove()
        self._runner.forward = self._forward  # type: ignore[method-assign]
        loss = torch.tensor(self._runner.loss, dtype=torch.float64)
        bound = (
            _SUM_SLACK * Rounding.from_dtype(torch.float32).work_epsilon * abs(self._expected_loss)
            + 1e-300
        )
        self._errors.worst_element.add(
            abs(float(loss) - self._expected_loss) / bound, 1.0, f"{self._name}: loss"
        )

    def _run_forward(self, micro_batch: int) -> None:
        self._micro_batch = micro_batch
        self._forward(micro_batch)

    def _check_logits(self, _: nn.Module, __: Any, logits: torch.Tensor) -> None:
        targets = self._runner.targets(self._micro_batch).to(logits.device)
        with torch._C.DisableTorchFunction(), torch.enable_grad():
            wide_logits = logits.detach().double().requires_grad_()
            loss = self._loss.compute(wide_logits, targets) * self._image_share
            self._expected_loss += float(loss.detach()) / self._loss.shares
            (expected,) = torch.autograd.grad(loss * self._scale, wide_logits)
        logits.register_hook(lambda gradient: self._compare(gradient.detach(), expected))

    def _compare(self, gradient: torch.Tensor, expected: torch.Tensor) -> None:
        rounding = Rounding.from_dtype(gradient.dtype)
        label = f"{self._name}: gradient of the logits"
        # A small gradient is the difference of a probability from 1.
        sizes = expected.abs() + self._image_share / self._loss.pixels * self._scale
        bound = (
            rounding.work_epsilon * (2.0 * expected.norm())
            + _SUM_SLACK * rounding.sum_epsilon * sizes.norm()
        )
        self._errors.worst_element.add(
            float((gradient.double() - expected).norm() / bound), 1.0, label
        )
        scale_error = ScaleError(rounding)
        scale_error.add(gradient, expected, sizes)
        self._errors.worst_scale.add(scale_error.error, 1.0, label)


class UpdateCheck:
    """The check of the optimizer's first step, by the same update in float64.

    Args:
        engine: The model, before its first step.
        training: The optimizer.
    """

    def __init__(self, engine: Engine, training: TrainingConfig) -> None:
        self._engine = engine
        self._training = training
        self._before = [
            {name: parameter.detach().clone() for name, parameter in stage.named_parameters()}
            for stage in engine.stages
        ]

    def compare(
        self, worst: WorstError, progress: Progress = NO_PROGRESS, steps_per_parameter: float = 1
    ) -> None:
        """Compare the weights with an update in float64 by the summed gradients.

        Args:
            worst: Collects the errors.
            progress: The progress over the parameters.
            steps_per_parameter: The steps of a parameter.
        """
        skipped = self._engine.arithmetic.skipped_steps > 0
        plan = self._engine.plan
        all_coordinates = self._engine.coordinates
        stages = self._engine.stages
        for coordinates, stage, before in zip(all_coordinates, stages, self._before, strict=True):
            if plan.master_comm and coordinates.direction != plan.owner:
                continue
            for name, parameter in stage.named_parameters():
                assert parameter.grad is not None, "all gradients are views of one tensor"
                wide_parameter = nn.Parameter(before[name].double())
                wide_parameter.grad = parameter.grad.double()
                if not skipped:
                    Optimizer(self._training, [wide_parameter]).step()
                label = f"{name} of stage {coordinates.stage}"
                self._compare(worst, parameter, before[name], wide_parameter, label)
                progress.advance(steps_per_parameter)

    def _compare(
        self,
        worst: WorstError,
        weights: nn.Parameter,
        before: torch.Tensor,
        expected: nn.Parameter,
        label: str,
    ) -> None:
        rounding = Rounding.from_dtype(weights.dtype)
        scale_error = ScaleError(rounding)
        error_squares = 0.0
        weight_squares = 0.0
        change_squares = 0.0
        for values, old_values, expected_values in zip(
            *map(split_into_blocks, (weights, before, expected)), strict=True
        ):
            old = old_values.double()
            new = values.double()
            change = expected_values - old
            error_squares += float((new - expected_values).square().sum())
            weight_squares += float(old.square().sum())
            change_squares += float(change.square().sum())
            scale_error.add(new - old, change, change.abs(), old.abs())
            scale_error.allow(_bound_lost_changes(change.abs(), old.abs() * rounding.work_epsilon))
        bound = (
            rounding.work_epsilon
            * (math.sqrt(weight_squares) + _SUM_SLACK * math.sqrt(change_squares))
            + 1e-300
        )
        worst.add(math.sqrt(error_squares) / bound, 1.0, label)
        worst.add(scale_error.error, 1.0, f"{label}, its change")


def _bound_lost_changes(changes: torch.Tensor, grid_steps: torch.Tensor) -> float:
    """Return an upper bound of the effect of small changes that rounding may lose.

    Weights are rounded to the grid of their format: a change below half a step of the grid is lost,
    and near one step the errors of changes and their rounding are correlated.

    Args:
        changes: The sizes of the changes.
        grid_steps: The largest steps of the grid at the weights.
    """
    is_small = changes < 2.0 * grid_steps
    return float((torch.minimum(changes, grid_steps / 2.0) * changes * is_small).sum())
