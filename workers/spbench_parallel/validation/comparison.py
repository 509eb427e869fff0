"""Comparison of the ranks' tensors with those that rank 0 expects."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_parallel.p2p.memory import memory_of
from spbench_parallel.validation.reference import ResultKey, ResultTensors
from spbench_parallel.verify.worst_error import WorstError

Cut = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class TensorPart:
    """The part of a tensor that a rank has.

    Attributes:
        values: The values of the part.
        cut: Its slices in the whole tensor; () for the whole.
    """

    values: torch.Tensor
    cut: Cut = ()


def compare(
    comm: MPI.Intracomm,
    wanted: ResultTensors,
    found: dict[ResultKey, TensorPart],
    *,
    mean_square: bool = False,
) -> tuple[float, str]:
    """Compare the ranks' tensors with those that rank 0 expects. All ranks must call it.

    Args:
        comm: The ranks.
        wanted: On rank 0, all tensors.
        found: This rank's parts of them.
        mean_square: Compare all differences together, by their squares, in place of the largest.

    Returns:
        The largest difference on this rank over the largest value that is expected of any tensor;
        or, with ``mean_square``, the root of the ratio of their sums of squares, over all parts of
        this rank. And the name of the tensor with most of it. The error is infinite for a wrong
        shape, and for a tensor that no rank has.
    """
    largest = comm.bcast(_largest(wanted.values()))
    shapes: dict[ResultKey, tuple[int, ...]] = comm.bcast(
        {key: tuple(tensor.shape) for key, tensor in wanted.items()}
    )
    worst = WorstError.with_tolerance(0.0)
    squares = 0.0
    of_squares = 0.0
    for key, shape in shapes.items():
        whole = wanted[key].detach().double().cpu() if comm.rank == 0 else torch.empty(0)
        part = found.get(key)
        expected = _received(comm, whole, shape)
        if not comm.allreduce(part is not None):
            return math.inf, f"{_name(key)}: no rank has it"
        if part is None:
            continue
        error, square, of_square = _errors(part, expected[part.cut] if part.cut else expected)
        squares, of_squares = squares + square, of_squares + of_square
        size = square if mean_square else error / largest
        worst.add(size, 0.0, _name(key))
    unknown = found.keys() - shapes.keys()
    if unknown:
        return math.inf, f"{_name(unknown.pop())} is not expected"
    if mean_square:
        together = math.sqrt(squares / of_squares) if of_squares else math.sqrt(squares)
        return together, worst.detail
    return worst.error, worst.detail


def _received(comm: MPI.Intracomm, whole: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor of rank 0, broadcast to all ranks, in fp64."""
    expected = whole.contiguous() if comm.rank == 0 else torch.empty(shape, dtype=torch.float64)
    if comm.size > 1:
        comm.Bcast([memory_of(expected), MPI.BYTE])
    return expected


def _errors(part: TensorPart, expected: torch.Tensor) -> tuple[float, float, float]:
    """Return the largest difference, the sum of its squares, and that of the expected values."""
    if expected.shape != part.values.shape:
        return math.inf, math.inf, 1.0
    values = part.values.detach().double().cpu()
    square = float((values - expected).square().sum())
    if math.isnan(square):
        return math.inf, math.inf, 1.0
    return _distance(values, expected), square, float(expected.square().sum())


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    if not one.numel():
        return 0.0
    error = float((one - other).abs().max())
    return math.inf if math.isnan(error) else error


def _largest(tensors: Iterable[torch.Tensor]) -> float:
    return max((float(one.abs().max()) for one in tensors if one.numel()), default=1.0) or 1.0


def moved(wanted: ResultTensors, other: ResultTensors) -> float:
    """Return the largest difference of two results, over the largest value of the first."""
    largest = _largest(wanted.values())
    errors = (_distance(wanted[key].double(), other[key].double()) for key in wanted)
    return max(errors, default=0.0) / largest


def _name(key: ResultKey) -> str:
    """Return a name for people: a parameter's, or ``replica 0, micro-batch 1``."""
    match key:
        case (int(replica), int(batch)):
            return f"replica {replica}, micro-batch {batch}"
        case (int(step),):
            return f"step {step}"
        case (int(replica), str(name)):
            return f"replica {replica}, {name}"
    return " ".join(map(str, key))
