"""Comparison of the ranks' tensors with those that rank 0 expects."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from mpi4py import MPI

from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.validation.reference import ResultKey, ResultTensors
from spbench_parallel.verify.worst_error import WorstError

Cut = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class TensorPart:
    """The part of a tensor that a rank has.

    Attributes:
        values: The values of the part.
        cut: Its slices in the whole tensor; () for the whole tensor.
    """

    values: torch.Tensor
    cut: Cut = ()


def compare(
    comm: MPI.Intracomm,
    expected: ResultTensors,
    parts: dict[ResultKey, TensorPart],
    *,
    mean_square: bool = False,
) -> tuple[float, str]:
    """Compare the ranks' tensors with those that rank 0 expects.

    All ranks must call it.

    Args:
        comm: The ranks.
        expected: On rank 0, all tensors.
        parts: This rank's parts of them.
        mean_square: Compare the sum of squares of all differences, instead of the largest
            difference.

    Returns:
        The error of this rank's parts, and the name of the tensor with the largest contribution.
        The error is the largest difference over the largest expected value of any tensor. With
        ``mean_square`` it is the root of the ratio of the sums of squares. It is infinite for a
        wrong shape, and for a tensor that no rank has.
    """
    largest = comm.bcast(_find_largest(expected.values()))
    shapes: dict[ResultKey, tuple[int, ...]] = comm.bcast(
        {key: tuple(tensor.shape) for key, tensor in expected.items()}
    )
    worst = WorstError.with_tolerance(0.0)
    error_squares = 0.0
    expected_squares = 0.0
    for key, shape in shapes.items():
        local_tensor = expected[key].detach().double().cpu() if comm.rank == 0 else torch.empty(0)
        part = parts.get(key)
        reference = _broadcast(comm, local_tensor, shape)
        if not comm.allreduce(part is not None):
            return math.inf, f"{_describe_key(key)}: no rank has it"
        if part is None:
            continue
        errors = _compare_part(part, reference[part.cut] if part.cut else reference)
        error_squares += errors.squares
        expected_squares += errors.expected_squares
        worst.add(
            errors.squares if mean_square else errors.largest / largest, 0.0, _describe_key(key)
        )

    unknown = parts.keys() - shapes.keys()
    if unknown:
        return math.inf, f"{_describe_key(unknown.pop())} is not expected"
    if mean_square:
        relative = error_squares / expected_squares if expected_squares else error_squares
        return math.sqrt(relative), worst.detail
    return worst.error, worst.detail


def _broadcast(comm: MPI.Intracomm, local: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor of rank 0 on all ranks, in fp64."""
    tensor = local.contiguous() if comm.rank == 0 else torch.empty(shape, dtype=torch.float64)
    if comm.size > 1:
        comm.Bcast([mpi_buffer(tensor), MPI.BYTE])
    return tensor


class _PartErrors(NamedTuple):
    """The errors of a part: the largest difference, and sums of squares."""

    largest: float
    squares: float
    expected_squares: float


_INFINITE = _PartErrors(math.inf, math.inf, 1.0)


def _compare_part(part: TensorPart, expected: torch.Tensor) -> _PartErrors:
    if expected.shape != part.values.shape:
        return _INFINITE
    values = part.values.detach().double().cpu()
    squares = float((values - expected).square().sum())
    if math.isnan(squares):
        return _INFINITE
    return _PartErrors(
        _find_largest_difference(values, expected), squares, float(expected.square().sum())
    )


def _find_largest_difference(values: torch.Tensor, expected: torch.Tensor) -> float:
    if not values.numel():
        return 0.0
    error = float((values - expected).abs().max())
    return math.inf if math.isnan(error) else error


def _find_largest(tensors: Iterable[torch.Tensor]) -> float:
    sizes = (float(tensor.abs().max()) for tensor in tensors if tensor.numel())
    return max(sizes, default=1.0) or 1.0


def compute_largest_change(before: ResultTensors, after: ResultTensors) -> float:
    """Return the largest difference of two results, relative to the first."""
    largest = _find_largest(before.values())
    errors = (_find_largest_difference(before[key].double(), after[key].double()) for key in before)
    return max(errors, default=0.0) / largest


def _describe_key(key: ResultKey) -> str:
    """Return a name for messages: a parameter's, or ``replica 0, micro-batch 1``."""
    match key:
        case (int(replica), int(batch)):
            return f"replica {replica}, micro-batch {batch}"
        case (int(step),):
            return f"step {step}"
        case (int(replica), str(name)):
            return f"replica {replica}, {name}"
    return " ".join(map(str, key))
