"""Checks of what a rank does with its logits and with its gradients: the loss, and the update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from mpi4py import MPI
from torch import nn
from torch.nn import functional

from spbench_parallel.engine import Engine
from spbench_parallel.full_size.bound import OperatorErrors, Rounding, ScaleError, split_flat
from spbench_parallel.pipeline.stage_runner import StageRunner
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.training.updates import Updates
from spbench_parallel.verify.worst_error import WorstError

_SUMS = 16.0
"""Last bits that the few sums and roundings of a loss, or of an update, may be off."""


@dataclass(frozen=True, slots=True)
class ExactLoss:
    """The loss of logits in float64, with the sums of all tiles gathered and added by themselves.

    Attributes:
        name: ``cross_entropy`` or ``dice``.
        pixels: Pixels of an image with a class each; 1 where it has one class.
        tiles: The ranks that have the other pixels, for these checks alone; None: there are none.
    """

    name: str
    pixels: int
    tiles: MPI.Intracomm | None

    @property
    def shares(self) -> int:
        """The ranks that each have as large a part of the loss that `of` returns."""
        return 1 if self.name == "cross_entropy" or self.tiles is None else self.tiles.size

    def compute(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum over images: of this rank's cross entropy, or of all tiles' Dice loss."""
        if self.name == "cross_entropy":
            return functional.cross_entropy(logits, targets, reduction="sum") / self.pixels
        shares = logits.softmax(1).flatten(2)
        wanted = torch.zeros_like(shares).scatter_(1, targets.flatten(1)[:, None], 1.0)
        overlap = self._added((shares * wanted).sum(2))
        total = self._added(shares.sum(2)) + self._added(wanted.sum(2))
        return (1 - (2 * overlap + 1) / (total + 1)).mean(1).sum()

    def _added(self, own: torch.Tensor) -> torch.Tensor:
        """Return the sum over all tiles, as it depends on this rank's part."""
        if self.tiles is None:
            return own
        every = self.tiles.allgather(own.detach().cpu())
        others = [one for rank, one in enumerate(every) if rank != self.tiles.rank]
        return own + sum(others).to(own.device) if others else own


class LossCheck:
    """The check of a last stage's losses, and of their gradients for the logits.

    Args:
        name: The stage's name.
        runner: The runner of the stage.
        loss: The loss in float64.
        images: Images of the replica's step, over which the loss is a mean.
        scale: The scale of the loss.
        errors: Take in the errors.
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
        self._share = 1.0 / images
        self._scale = scale
        self._total = 0.0
        self._handle: Any = runner.module.register_forward_hook(self._leave)
        self._forward = runner.forward
        self._micro_batch = 0
        runner.forward = self._noted  # type: ignore[method-assign]

    def finish(self) -> None:
        """Compare the step's loss, and take the hook away."""
        self._handle.remove()
        self._runner.forward = self._forward  # type: ignore[method-assign]
        found = torch.tensor(self._runner.loss, dtype=torch.float64)
        bound = _SUMS * Rounding.from_dtype(torch.float32).work * abs(self._total) + 1e-300
        self._errors.single.add(abs(float(found) - self._total) / bound, 1.0, f"{self._name}: loss")

    def _noted(self, micro_batch: int) -> None:
        self._micro_batch = micro_batch
        self._forward(micro_batch)

    def _leave(self, _: nn.Module, __: Any, logits: torch.Tensor) -> None:
        targets = self._runner.targets(self._micro_batch).to(logits.device)
        with torch._C.DisableTorchFunction(), torch.enable_grad():
            wide = logits.detach().double().requires_grad_()
            loss = self._loss.compute(wide, targets) * self._share
            self._total += float(loss.detach()) / self._loss.shares
            (wanted,) = torch.autograd.grad(loss * self._scale, wide)
        logits.register_hook(lambda gradient: self._compare(gradient.detach(), wanted))

    def _compare(self, found: torch.Tensor, wanted: torch.Tensor) -> None:
        rounding = Rounding.from_dtype(found.dtype)
        where = f"{self._name}: gradient of the logits"
        # A small one is the difference of a probability from 1.
        sizes = wanted.abs() + self._share / self._loss.pixels * self._scale
        bound = rounding.work * (2.0 * wanted.norm()) + _SUMS * rounding.sums * sizes.norm()
        self._errors.single.add(float((found.double() - wanted).norm() / bound), 1.0, where)
        scale = ScaleError(rounding)
        scale.add(found, wanted, sizes)
        self._errors.scales.add(scale.error, 1.0, where)


class UpdateCheck:
    """The check of the optimizer's first step: weights before and after, by gradients of float64.

    Args:
        engine: The model, before its first step.
        training: The optimizer.
    """

    def __init__(self, engine: Engine, training: TrainingConfig) -> None:
        self._engine = engine
        self._training = training
        self._before = [
            {name: one.detach().clone() for name, one in stage.named_parameters()}
            for stage in engine.stages
        ]

    def compare(
        self, worst: WorstError, progress: Progress = NO_PROGRESS, steps: float = 1
    ) -> None:
        """Compare the weights with what their summed gradients make of those before.

        Args:
            worst: Takes in the errors.
            progress: The progress over the parameters.
            steps: The steps of a parameter.
        """
        skipped = self._engine.arithmetic.skipped_steps > 0
        places = self._engine.coordinates
        stages = self._engine.stages
        for place, stage, before in zip(places, stages, self._before, strict=True):
            if self._engine.plan.master_comm and place.direction != self._engine.plan.owner:
                continue
            for name, parameter in stage.named_parameters():
                assert parameter.grad is not None, "all gradients are views of one tensor"
                wide = nn.Parameter(before[name].double())
                wide.grad = parameter.grad.double()
                if not skipped:
                    Updates(self._training, [wide]).step()
                self._note(worst, parameter, before[name], wide, f"{name} of stage {place.stage}")
                progress.advance(steps)

    def _note(
        self,
        worst: WorstError,
        found: nn.Parameter,
        before: torch.Tensor,
        wanted: nn.Parameter,
        where: str,
    ) -> None:
        rounding = Rounding.from_dtype(found.dtype)
        scale = ScaleError(rounding)
        error = 0.0
        size = 0.0
        changed = 0.0
        for own, was, exact in zip(*map(split_flat, (found, before, wanted)), strict=True):
            old = was.double()
            new = own.double()
            change = exact - old
            error += float((new - exact).square().sum())
            size += float(old.square().sum())
            changed += float(change.square().sum())
            scale.add(new - old, change, change.abs(), old.abs())
            scale.allow(_swallowed(change.abs(), old.abs() * rounding.work))
        bound = rounding.work * (math.sqrt(size) + _SUMS * math.sqrt(changed)) + 1e-300
        worst.add(math.sqrt(error) / bound, 1.0, where)
        worst.add(scale.error, 1.0, f"{where}, its change")


def _swallowed(changes: torch.Tensor, steps: torch.Tensor) -> float:
    """Return what of small changes their weights may swallow, times these changes.

    Weights lie on a grid, and are rounded to it again: what is below half a step of it is lost
    whole, and near one step a change and its rounding still go together.

    Args:
        changes: The sizes of the changes.
        steps: The steps of the grid at the weights, at most.
    """
    near = changes < 2.0 * steps
    return float((torch.minimum(changes, steps / 2.0) * changes * near).sum())
