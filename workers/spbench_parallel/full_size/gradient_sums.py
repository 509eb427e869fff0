"""Gradients of parameters, summed over micro-batches and ranks separately.

The gradient of each micro-batch is read before it is added, and summed in float64. Over tiles the
operators have already summed, which their checks cover: only the first tile counts.
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
from spbench_parallel.full_size.bound import Rounding, split_into_blocks
from spbench_parallel.full_size.regions import sum_over_ranks
from spbench_parallel.groups import create_group
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.precision.formats import FP32, FP64
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.verify.worst_error import WorstError

# Last bits that a sum may be off, relative to the sum of the norms of its addends.
_SLACK = 8.0


class GradientSums:
    """The sums of the gradients of a rank's stages in one step.

    Args:
        engine: The model.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sums: dict[nn.Parameter, torch.Tensor] = {}
        self._norm_sums: dict[nn.Parameter, float] = {}
        self._scale = engine.arithmetic.scale
        self._handles: list[Any] = [
            parameter.register_hook(self._create_adder(parameter))
            for coordinates, stage in zip(engine.coordinates, engine.stages, strict=True)
            if _counts(coordinates)
            for parameter in stage.parameters()
        ]

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _create_adder(self, parameter: nn.Parameter) -> Callable[[torch.Tensor], None]:
        def add(gradient: torch.Tensor) -> None:
            wide_gradient = gradient.detach().double() / self._scale
            self._norm_sums[parameter] = self._norm_sums.get(parameter, 0.0) + float(
                wide_gradient.norm()
            )
            if parameter in self._sums:
                self._sums[parameter] += wide_gradient
            else:
                self._sums[parameter] = wide_gradient

        return add

    def compare(
        self, worst: WorstError, progress: Progress = NO_PROGRESS, steps_per_parameter: float = 1
    ) -> None:
        """Compare the gradients of the step with these sums.

        All ranks must call it together.

        Args:
            worst: Collects the errors.
            progress: The progress over the parameters of this rank.
            steps_per_parameter: The steps of a parameter.
        """
        engine = self._engine
        layout = engine.plan.layout
        world = engine.world
        # Stage by stage on all ranks: only ranks of the stage create its communicator.
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
                self._compare_stage(comm, stage, worst, progress, steps_per_parameter)
                comm.Free()

    def _compare_stage(
        self,
        comm: MPI.Intracomm,
        stage: int,
        worst: WorstError,
        progress: Progress,
        steps_per_parameter: float,
    ) -> None:
        engine = self._engine
        plan = self._engine.plan
        parameters_by_coordinates = [
            (coordinates, dict(module.named_parameters()))
            for coordinates, module in zip(engine.coordinates, engine.stages, strict=True)
            if coordinates.stage == stage
        ]
        stage_sum = _StageSum(
            comm,
            has_addend=any(_counts(coordinates) for coordinates, _ in parameters_by_coordinates),
        )
        precision = FP64 if plan.precision.weights == torch.float64 else FP32
        bound_per_norm = _SLACK * Rounding.from_precision(precision).sum_epsilon
        for name in parameters_by_coordinates[0][1]:
            local_parts = [
                self._take_local_part(coordinates, parameters[name])
                for coordinates, parameters in parameters_by_coordinates
            ]
            sum_and_norm = stage_sum.compute(functools.reduce(torch.add, local_parts)).div_(
                plan.layout.replicas
            )
            expected = sum_and_norm[:-1]
            bound = bound_per_norm * float(sum_and_norm[-1]) + 1e-300
            for coordinates, parameters in parameters_by_coordinates:
                progress.advance(steps_per_parameter)
                if plan.master_comm and coordinates.direction != plan.owner:
                    continue
                gradient = parameters[name].grad
                assert gradient is not None, "all gradients are views of one tensor"
                worst.add(
                    _compute_distance(gradient, expected) / bound, 1.0, f"{name} of stage {stage}"
                )
        stage_sum.free()

    def _take_local_part(
        self, coordinates: RankCoordinates, parameter: nn.Parameter
    ) -> torch.Tensor:
        """Return this rank's part of a sum, followed by its part of the sum's size."""
        sum_and_norm = torch.zeros(parameter.numel() + 1, dtype=torch.float64)
        if _counts(coordinates) and parameter in self._sums:
            sum_and_norm[:-1] = self._sums.pop(parameter).cpu().reshape(-1)
            sum_and_norm[-1] = self._norm_sums[parameter]
        return sum_and_norm


def _compute_distance(values: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the norm of the difference of two tensors.

    The second is flat and in float64.
    """
    squares = (
        float((piece.cpu().double() - expected_piece).square().sum())
        for piece, expected_piece in zip(
            split_into_blocks(values), split_into_blocks(expected), strict=True
        )
    )
    return math.sqrt(sum(squares))


class _StageSum:
    """A sum over those ranks of a stage that have addends, returned on all its ranks.

    Args:
        comm: The stage's ranks, which must create, call and free it together.
        has_addend: Whether this rank has an addend.
    """

    def __init__(self, comm: MPI.Intracomm, *, has_addend: bool) -> None:
        self._comm = comm
        self._has_addend = has_addend
        self._adders = comm.Split(int(has_addend), comm.rank)
        self._first_adder = comm.allgather(has_addend).index(True)

    def compute(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum, which may overwrite the values."""
        total = sum_over_ranks(self._adders, values) if self._has_addend else values
        self._comm.Bcast([mpi_buffer(total), MPI.BYTE], self._first_adder)
        return total

    def free(self) -> None:
        """Free the communicator."""
        self._adders.Free()


def _counts(coordinates: RankCoordinates) -> bool:
    """Return whether a rank's gradients are added: only those of the first tile are."""
    return coordinates.tile == 0
