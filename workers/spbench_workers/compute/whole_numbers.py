"""Random data whose sums of products every number format holds exactly."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, sqrt

import torch

LARGEST_SUM = 1 << 14
"""No sum of products is greater, whatever the format."""


def largest_sum(dtype: torch.dtype) -> int:
    """Return up to where a format has every whole number, 1/u for the unit roundoff u."""
    return min(LARGEST_SUM, int(2.0 / torch.finfo(dtype).eps))


@dataclass(frozen=True, slots=True)
class Spread:
    """Whole numbers from ``-largest`` to ``largest``, of which a ``share`` is not set to zero."""

    largest: int
    share: float


def spread_for(terms: int, dtype: torch.dtype) -> Spread:
    """Return which whole numbers can be multiplied and added without any rounding.

    Of two such numbers each, ``terms`` products can be added in any order, in ``dtype``: even the
    sum of the products' sizes stays within `largest_sum`. Where ``terms`` is greater than that, so
    many of the numbers are zero that a sum above it is out of the question (less than a quarter of
    it is expected).
    """
    limit = largest_sum(dtype)
    share = 1.0 if terms <= limit else sqrt(limit / (4.0 * terms))
    return Spread(max(1, isqrt(limit // terms)), share)


def whole_numbers(
    shape: tuple[int, ...], terms: int, dtype: torch.dtype, seed: int
) -> torch.Tensor:
    """Return random whole numbers of `spread_for` on the CPU, in float64."""
    generator = torch.Generator().manual_seed(seed)
    spread = spread_for(terms, dtype)
    largest = spread.largest
    numbers = torch.randint(-largest, largest + 1, shape, generator=generator, dtype=torch.float64)
    if spread.share < 1.0:
        numbers *= torch.rand(shape, generator=generator) < spread.share
    return numbers
