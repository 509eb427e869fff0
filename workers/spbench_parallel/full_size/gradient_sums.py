"""Gradients of parameters, summed over micro-batches and ranks in an order of their own.

What each micro-batch gives is caught before it is added, and summed in float64. Over tiles the
operators have summed already, which their own checks see: the first tile counts for all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import RankCoordinates
from spbench_parallel.engine import Engine
from spbench_parallel.full_size.bound import Rounding, split_flat
from spbench_parallel.full_size.regions import sum_over_ranks
from spbench_parallel.groups import create_group
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.precision.formats import FP32, FP64
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.verify.worst_error import WorstError

_SLACK = 8.0
"""Last bits that a sum may be off, over the sum of the lengths of what is added."""


class GradientSums:
    """The sums of the gradients of a rank's stages in one step.

    Args:
        engine: The model.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sums: dict[nn.Parameter, torch.Tensor] = {}
        self._sizes: dict[nn.Parameter, float] = {}
        self._scale = engine.arithmetic.scale
        self._handles: list[Any] = [
            parameter.register_hook(self._adder(parameter))
            for place, stage in zip(engine.coordinates, engine.stages, strict=True)
            if _counts(place)
            for parameter in stage.parameters()
        ]

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    def _adder(self, parameter: nn.Parameter) -> Callable[[torch.Tensor], None]:
        def add(gradient: torch.Tensor) -> None:
            wide = gradient.detach().double() / self._scale
            self._sizes[parameter] = self._sizes.get(parameter, 0.0) + float(wide.norm())
            if parameter in self._sums:
                self._sums[parameter] += wide
            else:
                self._sums[parameter] = wide

        return add

    def compare(
        self, worst: WorstError, progress: Progress = NO_PROGRESS, steps: float = 1
    ) -> None:
        """Compare the gradients of the step with these sums.

        All ranks must call it together.

        Args:
            worst: Takes in the errors.
            progress: The progress over the parameters of this rank.
            steps: The steps of a parameter.
        """
        engine = self._engine
        layout = engine.plan.layout
        world = engine.world
        for stage in range(len(layout.stages)):
            ranks = sorted(
                {
                    rank
                    for replica in range(layout.replicas)
                    for direction in layout.directions
                    for rank in layout.list_stage_ranks(stage, replica, direction)
                }
            )
            if world.rank in ranks:
                comm = create_group(world, ranks)
                self._compare_stage(comm, stage, worst, progress, steps)
                comm.Free()

    def _compare_stage(
        self, comm: MPI.Intracomm, stage: int, worst: WorstError, progress: Progress, steps: float
    ) -> None:
        engine = self._engine
        plan = self._engine.plan
        mine = [
            (place, dict(module.named_parameters()))
            for place, module in zip(engine.coordinates, engine.stages, strict=True)
            if place.stage == stage
        ]
        sums = _Total(comm, adds=any(_counts(place) for place, _ in mine))
        precision = FP64 if plan.precision.weights == torch.float64 else FP32
        unit = _SLACK * Rounding.from_precision(precision).sums
        for name in mine[0][1]:
            parts = [self._part(place, of[name]) for place, of in mine]
            total = sums.of(functools.reduce(torch.add, parts)).div_(plan.layout.replicas)
            wanted = total[:-1]
            bound = unit * float(total[-1]) + 1e-300
            for place, of in mine:
                progress.advance(steps)
                if plan.master_comm and place.direction != plan.owner:
                    continue
                found = of[name].grad
                assert found is not None, "all gradients are views of one tensor"
                worst.add(_distance(found, wanted) / bound, 1.0, f"{name} of stage {stage}")
        sums.free()

    def _part(self, place: RankCoordinates, parameter: nn.Parameter) -> torch.Tensor:
        """Return this place's part of a sum, and behind it that of the size of its terms."""
        part = torch.zeros(parameter.numel() + 1, dtype=torch.float64)
        if _counts(place) and parameter in self._sums:
            part[:-1] = self._sums.pop(parameter).cpu().reshape(-1)
            part[-1] = self._sizes[parameter]
        return part


def _distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the length of the difference of two tensors, the second flat and in float64."""
    squares = (
        float((own.cpu().double() - exact).square().sum())
        for own, exact in zip(split_flat(found), split_flat(wanted), strict=True)
    )
    return math.sqrt(sum(squares))


class _Total:
    """The sum over the ranks of a stage that have something to add, told to all of them.

    Args:
        comm: The stage's ranks. All must make it together, call it, and free it.
        adds: Whether this rank has something to add.
    """

    def __init__(self, comm: MPI.Intracomm, *, adds: bool) -> None:
        self._comm = comm
        self._adds = adds
        self._adders = comm.Split(int(adds), comm.rank)
        self._first = comm.allgather(adds).index(True)

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum, which may take the place of the values."""
        total = sum_over_ranks(self._adders, values) if self._adds else values
        self._comm.Bcast([mpi_buffer(total), MPI.BYTE], self._first)
        return total

    def free(self) -> None:
        """Free what it has of MPI's."""
        self._adders.Free()


def _counts(place: RankCoordinates) -> bool:
    """Whether a place's gradients are added: those of the first tile stand for all."""
    return place.tile == 0
