"""Error bounds of a number format, and the worst error over its bound.

An operator sums ``n`` products. Its result is rounded to the format in which it works. So are parts
of it that are computed and added one after the other. Products are summed in the wider format of
accumulation. The bound of a vector ``v`` is

    SLACK * (u * (|v| + m / sqrt(n)) + a * m)

with ``u`` and ``a`` the distances from 1 to the next number of the two formats, and ``m`` the sum
of magnitudes of the vector's terms, by the inequality of Cauchy and Schwarz. This is the effect of
random rounding of a sum and of its parts. Vectors are the channels of one pixel, over which errors
average out, so that a wrong border of one pixel is detected in any format. In TF32 a GPU also
rounds, or truncates, both factors of each product. The bound then has SLACK * t * m in addition,
with ``t`` the distance from 1 to the next number of TF32.

A wrong scale is not detected in this way: in bf16 each number may be off by 0.4 %. But rounding
errors have either sign, and `ScaleError` compares the scale of a whole tensor, with values ``f``
and expected values ``r``, with 1: <f, r> / <r, r>. If errors are independent, have a mean of 0 and
are at most ``b``, Hoeffding's inequality (JASA 58, 1963; for rounding: Higham and Mary, SIAM J.
Sci. Comput. 41, 2019) gives

    P(|scale - 1| > C sqrt(sum (b r)^2) / sum r^2) <= 2 exp(-C^2 / 2)

which is 5e-11 with C = 7. If ``b = u r / 2``, the bound is ``C u / (2 sqrt(n))``, with the
effective number of values ``n = (sum r^2)^2 / sum r^4``, in which few large values count as few.
Errors of sums in the wide format may have one sign, and are added without the square root. So are
errors of numbers near the format's smallest one. In TF32 a rounded factor is part of many values,
so that their errors are not independent: SLACK * t is added for their common part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from spbench_parallel.precision.formats import Precision

SLACK = 2.0
STATISTICS_SLACK = 16.0
"""The ratio of rounding errors of sums over all pixels to those of one sum, in the wide format."""
CONFIDENCE = 7.0
"""The C of a scale's bound."""
UNDERFLOW = 4.0
"""Rounding is unbiased above this multiple of the format's smallest number."""
# Avoids division by zero.
_TINY = 1e-300


MAX_BLOCK_VALUES = 2**18
"""The largest number of values of a block, 2 MiB in float64, unless one row has more."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of one image, with all channels."""

    image: int
    rows: slice

    def select(self, values: torch.Tensor) -> torch.Tensor:
        """Return a view of the block in a map ``batch x channels x rows x cols``."""
        return values[self.image : self.image + 1, :, self.rows]


def blocks(shape: Sequence[int]) -> Iterator[Block]:
    """Yield the blocks of maps of a shape ``batch x channels x rows x cols``."""
    images, channels, rows, cols = shape
    rows_per_block = max(1, MAX_BLOCK_VALUES // max(1, channels * cols))
    for image in range(images):
        for first_row in range(0, rows, rows_per_block):
            yield Block(image, slice(first_row, min(first_row + rows_per_block, rows)))


def split_into_blocks(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a tensor of any shape as flat pieces of a block's size."""
    return torch.split(values.detach().reshape(-1), MAX_BLOCK_VALUES)


@dataclass(frozen=True, slots=True)
class Rounding:
    """The rounding of a number format.

    Attributes:
        work_epsilon: The distance from 1 to the next number of the format of products and maps.
        sum_epsilon: The same distance of the format in which they are summed.
        smallest: The distance from 0 to the next number of the format of maps.
        factor_epsilon: The distance from 1 to the next number of the format to which factors of
            products are rounded; 0 if factors are not rounded.
    """

    work_epsilon: float
    sum_epsilon: float
    smallest: float
    factor_epsilon: float = 0.0

    @classmethod
    def from_precision(cls, precision: Precision) -> Rounding:
        """Return the rounding of a number format."""
        factor_epsilon = precision.epsilon if precision.tf32 else 0.0
        return replace(cls.from_dtype(precision.work), factor_epsilon=factor_epsilon)

    @classmethod
    def from_dtype(cls, dtype: torch.dtype) -> Rounding:
        """Return the rounding of products that are summed and returned in a number format."""
        sum_dtype = torch.promote_types(dtype, torch.float32)
        eps = float(torch.finfo(dtype).eps)
        smallest = float(torch.finfo(dtype).smallest_normal) * eps
        return cls(eps, float(torch.finfo(sum_dtype).eps), smallest)

    @property
    def without_factors(self) -> Rounding:
        """The rounding of operators that do not multiply."""
        return replace(self, factor_epsilon=0.0)

    def bound(
        self,
        norm: torch.Tensor,
        magnitude: torch.Tensor,
        term_count: float,
        value_count: float,
        product_magnitude: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return bounds of vectors' errors.

        Args:
            norm: The norms of the vectors.
            magnitude: The norms of the sums of magnitudes of their terms.
            term_count: The number of terms of each sum.
            value_count: The number of values of each vector.
            product_magnitude: The norms of the sums of magnitudes of products (default:
                `magnitude`).
        """
        product_magnitude = magnitude if product_magnitude is None else product_magnitude
        rounded_norm = norm + magnitude / math.sqrt(max(1.0, term_count))
        underflow = self.smallest * math.sqrt(max(1.0, value_count))
        error = (
            self.work_epsilon * rounded_norm
            + self.sum_epsilon * magnitude
            + underflow
            + self.factor_epsilon * product_magnitude
        )
        return SLACK * error


class ScaleError:
    """The error of a tensor's scale, computed part by part.

    Args:
        rounding: The rounding of its format.
    """

    def __init__(self, rounding: Rounding) -> None:
        self._rounding = rounding
        self._error_product = self._random_squares = self._random_sum = self._systematic = 0.0

    def add(
        self,
        values: torch.Tensor,
        expected: torch.Tensor,
        magnitude: torch.Tensor | float = 0.0,
        part_magnitude: torch.Tensor | float = 0.0,
        part_count: float = 1.0,
    ) -> None:
        """Add a part of the tensor.

        Args:
            values: The values.
            expected: The reference in float64.
            magnitude: By value, the sums of magnitudes of its terms.
            part_magnitude: By value, those of the parts of it that are rounded separately.
            part_count: The number of these parts.
        """
        if not values.numel() and not expected.numel():
            return  # the tile of this rank has no pixel left
        if values.shape != expected.shape:
            self._error_product = math.inf
            return
        if expected.dim() != 4:
            self._add(values, expected, magnitude, part_magnitude, part_count)
            return
        for block in blocks(expected.shape):
            block_magnitude, block_part_magnitude = (
                block.select(sizes) if isinstance(sizes, torch.Tensor) else sizes
                for sizes in (magnitude, part_magnitude)
            )
            self._add(
                block.select(values),
                block.select(expected),
                block_magnitude,
                block_part_magnitude,
                part_count,
            )

    def allow(self, products: float) -> None:
        """Allow for errors that may all have the same sign.

        Args:
            products: The sum of the products of these errors' sizes and their values.
        """
        self._systematic += products

    def _add(
        self,
        values: torch.Tensor,
        expected: torch.Tensor,
        magnitude: torch.Tensor | float,
        part_magnitude: torch.Tensor | float,
        part_count: float,
    ) -> None:
        rounding = self._rounding
        expected_sizes = expected.abs()
        error_products = (
            ((expected_sizes + part_magnitude) * rounding.work_epsilon + rounding.smallest)
            * expected_sizes
            / 2
        )
        if rounding.factor_epsilon:
            error_products = error_products + rounding.factor_epsilon * magnitude * expected_sizes
            self._systematic += (
                SLACK * rounding.factor_epsilon * float(expected_sizes.square().sum())
            )
        self._error_product += float(((values.double() - expected) * expected).sum())
        self._random_squares += float(error_products.square().sum())
        self._random_sum += float(error_products.sum())
        self._systematic += float(
            (STATISTICS_SLACK * rounding.sum_epsilon * expected_sizes * magnitude).sum()
        )
        # Parts close to the smallest number are all rounded in one direction: to 0 or to it.
        largest_sizes = torch.maximum(
            expected_sizes,
            torch.as_tensor(part_magnitude, dtype=expected_sizes.dtype).to(expected_sizes.device),
        )
        lost_sizes = (largest_sizes < UNDERFLOW * part_count * rounding.smallest) * (
            part_count * rounding.smallest / 2
        )
        self._systematic += float((lost_sizes * expected_sizes).sum())

    @property
    def error(self) -> float:
        """The distance of the scale from 1, relative to its bound."""
        random_bound = min(CONFIDENCE * math.sqrt(self._random_squares), self._random_sum)
        return abs(self._error_product) / (random_bound + self._systematic + _TINY)


def find_worst_pixel(
    values: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor
) -> tuple[float, tuple[int, int]]:
    """Return the largest error of a pixel over its bound, and its position.

    Args:
        values: ``batch x channels x rows x cols``.
        expected: The reference in float64.
        bound: The bounds, ``batch x rows x cols``.
    """
    if not values.numel() and not expected.numel():
        return 0.0, (0, 0)
    if values.shape != expected.shape:
        return math.inf, (0, 0)
    worst = 0.0
    position = (0, 0)
    for block in blocks(values.shape):
        pixel_errors = (
            (block.select(values).double() - block.select(expected)).square_().sum(1).sqrt()[0]
        )
        errors_over_bounds = pixel_errors / (bound[block.image, block.rows] + _TINY)
        errors_over_bounds = torch.nan_to_num(errors_over_bounds, nan=math.inf, posinf=math.inf)
        row, col = divmod(int(errors_over_bounds.argmax()), errors_over_bounds.shape[1])
        if float(errors_over_bounds[row, col]) > worst:
            worst = float(errors_over_bounds[row, col])
            position = (block.rows.start + row, col)
    return worst, position


def compute_pixel_norms(values: torch.Tensor) -> torch.Tensor:
    """Return the norm of the channels of each pixel, ``batch x rows x cols``."""
    return values.square().sum(1).sqrt()
