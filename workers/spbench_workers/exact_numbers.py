"""Random whole numbers that are multiplied and added without rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, sqrt

import torch

from spbench_parallel.device.streams import synchronize_stream
from spbench_workers.context import Context

LARGEST_SUM = 1 << 14
"""The largest sum of products, in any format."""
LARGEST_CONVOLVED = 1 << 13
"""The largest sum of a convolution: fast algorithms (Winograd) multiply by fractions and round."""
LARGEST_ROUNDED = 32
"""The largest sum if such an algorithm rounds factors to 11 bits.

Tensor cores do (fp16, tf32). It is also that of tiles of 13x13, which kernels of 5x5 use. In a
model with tiles of 6x6 in fp16, sums up to this number were within 0.11 of the whole number, and
sums up to 2048 were off by 2.7.
"""
WIDE = range(2049, 2112, 2)
"""Numbers with twelve bits: TF32, which has eleven, changes each by one."""


def compute_largest_sum(dtype: torch.dtype) -> int:
    """Return the largest number up to which a format has every whole number.

    It is 1/u, with the unit roundoff u.
    """
    return min(LARGEST_SUM, int(2.0 / torch.finfo(dtype).eps))


def compute_largest_convolved_sum(
    dtype: torch.dtype, kernel: tuple[int, int], *, gpu: bool, tf32: bool = False
) -> int:
    """Return the largest sum of a convolution that is certain after rounding.

    Sums on the host are exact, since it uses no fast algorithm.
    """
    if not gpu and not tf32:
        return compute_largest_sum(dtype)
    is_rounded = tf32 or dtype == torch.float16 or kernel == (5, 5)
    return min(compute_largest_sum(dtype), LARGEST_ROUNDED if is_rounded else LARGEST_CONVOLVED)


@dataclass(frozen=True, slots=True)
class NumberDistribution:
    """A distribution of whole numbers up to ``largest``; a ``share`` is not zero."""

    largest: int
    share: float


def choose_distribution(terms: int, limit: int, *, wide: bool = False) -> NumberDistribution:
    """Return a distribution of numbers that are multiplied and added exactly.

    Sums of ``terms`` products of two such numbers are exact in any order: the sum of the products'
    sizes stays within ``limit``. If ``terms`` is larger than that, enough numbers are zero that a
    larger sum is not expected. The expected sum is then less than a quarter of it.

    Args:
        terms: The number of products in a sum.
        limit: The largest sum, `compute_largest_sum` or less.
        wide: Whether one factor of each sum may be one of `WIDE`.
    """
    max_wide = WIDE[-1] if wide else 0
    if terms > limit - max_wide:
        return NumberDistribution(1, sqrt((limit - max_wide) / (4.0 * terms)))
    # The largest n with terms * n^2 + max_wide * n <= limit, so that no sum exceeds the limit.
    return NumberDistribution(
        (isqrt(max_wide * max_wide + 4 * terms * limit) - max_wide) // (2 * terms), 1.0
    )


def shows_tf32(limit: int) -> bool:
    """Return whether sums up to ``limit`` allow a factor that TF32 rounds."""
    return limit >= 2 * WIDE[-1]


def draw_whole_numbers(
    shape: tuple[int, ...], distribution: NumberDistribution, seed: int
) -> torch.Tensor:
    """Return random whole numbers on the CPU, in float64."""
    generator = torch.Generator().manual_seed(seed)
    largest = distribution.largest
    numbers = torch.randint(-largest, largest + 1, shape, generator=generator, dtype=torch.float64)
    if distribution.share < 1.0:
        numbers *= torch.rand(shape, generator=generator) < distribution.share
    return numbers


def insert_wide(numbers: torch.Tensor, dim: int, seed: int) -> None:
    """Replace one number of each line along a dimension by one of `WIDE`."""
    generator = torch.Generator().manual_seed(seed)
    shape = [1 if axis == dim else size for axis, size in enumerate(numbers.shape)]
    positions = torch.randint(numbers.shape[dim], shape, generator=generator)
    wide_numbers = torch.randint(len(WIDE), shape, generator=generator) * WIDE.step + WIDE.start
    numbers.scatter_(dim, positions, wide_numbers.to(numbers.dtype))


def fill_uniform(context: Context, name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Fill timed tensors with numbers from -1 to 1, different ones on each rank."""
    for index, tensor in enumerate(tensors):
        generator = torch.Generator(tensor.device)
        generator.manual_seed(context.seed_for(name, context.world.rank, index))
        tensor.uniform_(-1.0, 1.0, generator=generator)
        synchronize_stream(tensor.device)
