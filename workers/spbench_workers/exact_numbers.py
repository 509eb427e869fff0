"""Random whole numbers whose sums of products are exact in every number format."""

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
"""The largest in a convolution: fast algorithms (Winograd) multiply by fractions and round."""
LARGEST_ROUNDED = 32
"""The largest where such an algorithm rounds factors to 11 bits, as on tensor cores (fp16, tf32),
or has tiles of 13x13, as for kernels of 5x5. Modelled with tiles of 6x6 in fp16, sums up to this
came out within 0.11 of the whole number, sums up to 2048 no nearer than 2.7."""
WIDE = range(2049, 2112, 2)
"""Numbers of twelve bits: TF32, which has eleven, changes each by one."""


def largest_sum(dtype: torch.dtype) -> int:
    """Return the number up to which a format has every whole number: 1/u, u the unit roundoff."""
    return min(LARGEST_SUM, int(2.0 / torch.finfo(dtype).eps))


def largest_convolved(
    dtype: torch.dtype, kernel: tuple[int, int], *, gpu: bool, tf32: bool = False
) -> int:
    """Return the largest sum of a convolution whose rounded value is certain.

    On the host, where no fast algorithm runs, sums are exact.
    """
    if not gpu and not tf32:
        return largest_sum(dtype)
    rounds = tf32 or dtype == torch.float16 or kernel == (5, 5)
    return min(largest_sum(dtype), LARGEST_ROUNDED if rounds else LARGEST_CONVOLVED)


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution: whole numbers up to ``largest`` in size, all but a ``share`` set to zero."""

    largest: int
    share: float


def choose_spread(terms: int, limit: int, *, wide: bool = False) -> Spread:
    """Return the distribution of whole numbers that are multiplied and added without rounding.

    ``terms`` products of two such numbers can be added in any order: the sum of the products' sizes
    stays within ``limit``. Where ``terms`` is greater than that, so many of the numbers are zero
    that a larger sum cannot be expected (the expected one is less than a quarter of it).

    Args:
        terms: The number of products in a sum.
        limit: The largest sum, `largest_sum` or less.
        wide: Whether one factor of each sum may be one of `WIDE`.
    """
    most = WIDE[-1] if wide else 0
    if terms > limit - most:
        return Spread(1, sqrt((limit - most) / (4.0 * terms)))
    # The largest n with terms * n^2 + most * n <= limit.
    return Spread((isqrt(most * most + 4 * terms * limit) - most) // (2 * terms), 1.0)


def shows_tf32(limit: int) -> bool:
    """Whether sums up to ``limit`` leave room for a factor that TF32 rounds."""
    return limit >= 2 * WIDE[-1]


def whole_numbers(shape: tuple[int, ...], spread: Spread, seed: int) -> torch.Tensor:
    """Return random whole numbers on the CPU, in float64."""
    generator = torch.Generator().manual_seed(seed)
    largest = spread.largest
    numbers = torch.randint(-largest, largest + 1, shape, generator=generator, dtype=torch.float64)
    if spread.share < 1.0:
        numbers *= torch.rand(shape, generator=generator) < spread.share
    return numbers


def insert_wide(numbers: torch.Tensor, dim: int, seed: int) -> None:
    """Replace one number of each line along a dimension by one of `WIDE`."""
    generator = torch.Generator().manual_seed(seed)
    shape = [1 if one == dim else size for one, size in enumerate(numbers.shape)]
    places = torch.randint(numbers.shape[dim], shape, generator=generator)
    wide = torch.randint(len(WIDE), shape, generator=generator) * WIDE.step + WIDE.start
    numbers.scatter_(dim, places, wide.to(numbers.dtype))


def fill_uniform(context: Context, name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Fill what is timed with numbers from -1 to 1, other ones on each rank, where they lie."""
    for index, tensor in enumerate(tensors):
        generator = torch.Generator(tensor.device)
        generator.manual_seed(context.seed_for(name, context.world.rank, index))
        tensor.uniform_(-1.0, 1.0, generator=generator)
        synchronize_stream(tensor.device)
