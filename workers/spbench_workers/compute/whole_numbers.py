"""Random data whose sums of products every number format holds exactly."""

from __future__ import annotations

from math import isqrt, sqrt

import torch

LARGEST_SUM = 1 << 14
"""No sum of products is greater, whatever the format."""


def largest_sum(dtype: torch.dtype) -> int:
    """Return up to where a format has every whole number, 1/u for the unit roundoff u."""
    return min(LARGEST_SUM, int(2.0 / torch.finfo(dtype).eps))


def whole_numbers(
    shape: tuple[int, ...], terms: int, dtype: torch.dtype, seed: int
) -> torch.Tensor:
    """Return random whole numbers on the CPU, in float64.

    Two such tensors can be multiplied and ``terms`` products added in any order, in ``dtype``, and
    no step rounds: even the sum of the products' sizes stays within `largest_sum`. Where ``terms``
    is greater than that, so many of the numbers are zero that a sum above it is out of the question
    (less than a quarter of it is expected).
    """
    generator = torch.Generator().manual_seed(seed)
    limit = largest_sum(dtype)
    largest = max(1, isqrt(limit // terms))
    numbers = torch.randint(-largest, largest + 1, shape, generator=generator, dtype=torch.float64)
    if terms > limit:
        share = sqrt(limit / (4.0 * terms))
        numbers *= torch.rand(shape, generator=generator) < share
    return numbers
