"""Independently computed results of a collective, in float64 or in integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from spbench_workers.benchmarks.allreduce.verification.data import (
    ExpectedPeriod,
    InputDistribution,
    Values,
)
from spbench_workers.collectives.algorithms.trees import group_size
from spbench_workers.collectives.base import FIXED_SIZES, MUJI_SIZES

InputSource = Callable[[int], Values]
"""Returns one period of a rank's input."""


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a rank's result, with the ranks that contribute input to it.

    Attributes:
        offset: Its first element in the result.
        count: The number of its elements.
        sources: The contributing ranks; inputs of several ranks are reduced.
        input_offset: Its first element in the input of each source.
    """

    offset: int
    count: int
    sources: tuple[int, ...]
    input_offset: int


def list_result_parts(collective: str, ranks: int, rank: int, count: int) -> list[ResultPart]:
    """Return the parts of a rank's result according to the MPI standard.

    Args:
        collective: A collective of the catalog.
        ranks: The number of ranks.
        rank: The rank of the result.
        count: Elements of one rank's part, or of the whole vector for allreduce and broadcast.
    """
    everyone = tuple(range(ranks))
    return {
        "allreduce": [ResultPart(0, count, everyone, 0)],
        "broadcast": [ResultPart(0, count, (0,), 0)],
        "reduce_scatter": [ResultPart(0, count, everyone, rank * count)],
        "allgather": [ResultPart(source * count, count, (source,), 0) for source in everyone],
        "alltoall": [
            ResultPart(source * count, count, (source,), rank * count) for source in everyone
        ],
    }[collective]


def compute_expected(
    distribution: InputDistribution, sources: Sequence[int], read_input: InputSource, depth: int
) -> ExpectedPeriod:
    """Return one period of the reduction of the inputs of some ranks.

    If each term of a sum passes through at most ``depth`` additions, the sum is off by at most
    ``(depth + 1) u sum|x|`` with the unit roundoff ``u`` (Higham, Accuracy and Stability of
    Numerical Algorithms, 4.2). A product of n factors in any order is off by at most
    ``n u |product|``. Whole numbers, maxima and minima are exact.

    Args:
        distribution: The distribution of the inputs.
        sources: The ranks.
        read_input: Returns the input of a rank.
        depth: The most additions that a term passes through.
    """
    first, *others = sources
    total = read_input(first).copy()
    correction = np.zeros_like(total)
    magnitudes = np.abs(total)
    for source in others:
        values = read_input(source)
        if distribution.op == "sum":
            total, rounding_errors = _two_sum(total, values)
            correction += rounding_errors
            magnitudes += np.abs(values)
        else:
            total = _OPS[distribution.op](total, values)
    return ExpectedPeriod(
        total, correction, _compute_tolerance(distribution, len(sources), depth, total, magnitudes)
    )


_OPS = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _two_sum(a: Values, b: Values) -> tuple[Values, Values]:
    """Return the sum and its rounding error, which is 0 for integers.

    Source: TwoSum (Knuth, TAOCP 2, 4.2.2).
    """
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _compute_tolerance(
    distribution: InputDistribution, terms: int, depth: int, total: Values, magnitudes: Values
) -> Values:
    is_rounded = (
        distribution.dtype.is_floating_point and distribution.kind == "random" and terms > 1
    )
    if not is_rounded or distribution.op in ("max", "min"):
        return np.zeros(len(total))
    unit_roundoff = torch.finfo(distribution.dtype).eps / 2
    if distribution.op == "sum":
        tolerance: Values = (depth + 1) * unit_roundoff * magnitudes
        return tolerance
    # The reference rounds too, because it is a product of float64 numbers.
    return terms * (unit_roundoff + 2.0**-53) * np.abs(total)


_TREES = ("recursive_doubling", "rabenseifner", "binomial", *FIXED_SIZES)


def compute_depth(algorithm: str, ranks: int, group: int | None) -> int:
    """Return the additions per term; for a library, the most in any order."""
    if algorithm in _TREES or (algorithm == "muji" and ranks in MUJI_SIZES):
        return (ranks - 1).bit_length()
    if algorithm == "two_level":
        group_ranks = group_size(ranks, group)
        return (group_ranks - 1).bit_length() + -(-ranks // group_ranks) - 1
    return ranks - 1
