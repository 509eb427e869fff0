"""Error bounds of a number format, and the worst error of many over their bounds.

An operator sums ``n`` products. Its result is rounded to the format in which it works, and so are
parts of it that are computed and added one after the other; products are summed in the wider format
of accumulation. The bound of a vector ``v`` is

    SLACK * (u * (|v| + m / sqrt(n)) + a * m)

with ``u`` and ``a`` the distances from 1 to the next number of the two formats, and ``m`` the sum
of magnitudes that the vector is made of, by the inequality of Cauchy and Schwarz: what random
rounding leaves, of a sum and of its parts. Vectors are the channels of one pixel, over which errors
even out, so that a wrong border of one pixel stands out in any format. In TF32 a GPU also rounds,
or cuts off, both factors of each product. The bound then has SLACK * t * m in addition, with ``t``
the distance from 1 to the next number of TF32.

A wrong scale does not: in bf16 each number may be off by 0.4 %. But rounding errs up and down, and
`ScaleError` holds the scale of a whole tensor, <found, wanted> / <wanted, wanted>, against 1. With
wanted values ``r`` and errors of at most ``b``, independent and of mean 0, Hoeffding's inequality
(JASA 58, 1963; of rounding: Higham and Mary, SIAM J. Sci. Comput. 41, 2019) says

    P(|scale - 1| > C sqrt(sum (b r)^2) / sum r^2) <= 2 exp(-C^2 / 2)

which is 5e-11 with C = 7. Where ``b = u r / 2``, the bound is ``C u / (2 sqrt(n))``, with ``n`` the
number of values, (sum r^2)^2 / sum r^4: few large ones count as few. What sums in the wide format
are off may be of one sign: it is added as it is, and so is what numbers near the format's least
one lose. In TF32 a rounded factor is part of many values, so that their errors are not independent:
SLACK * t is added for what they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from spbench_parallel.precision.formats import Precision
from spbench_parallel.verify.worst_error import WorstError

SLACK = 2.0
STATISTICS_SLACK = 16.0
"""Last bits of the wide format that sums over all pixels may be off, over those of one sum."""
CONFIDENCE = 7.0
"""The C of a scale's bound."""
UNDERFLOW = 4.0
"""The multiple of the least number from which on rounding is not of one direction."""
_TINY = 1e-300


BLOCK = 2**18
"""The most values of a block, 2 MiB in float64, where one row of all channels has no more."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of one image, with all channels."""

    image: int
    rows: slice

    def select(self, values: torch.Tensor) -> torch.Tensor:
        """Return the block of a map, ``1 x channels x rows x cols``, in its own memory."""
        return values[self.image : self.image + 1, :, self.rows]


def blocks(shape: Sequence[int]) -> Iterator[Block]:
    """Yield the blocks of maps of a shape, ``batch x channels x rows x cols``."""
    images, channels, rows, cols = shape
    step = max(1, BLOCK // max(1, channels * cols))
    for image in range(images):
        for first in range(0, rows, step):
            yield Block(image, slice(first, min(first + step, rows)))


def split_flat(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a tensor of any shape, flat, in pieces of a block's size."""
    return torch.split(values.detach().reshape(-1), BLOCK)


@dataclass(frozen=True, slots=True)
class Rounding:
    """The rounding of a number format.

    Attributes:
        work: From 1 to the next number of the format of products and maps.
        sums: The same of the format in which they are summed.
        least: From 0 to the next number of the format of maps.
        factors: From 1 to the next number of the format to which factors are rounded when they are
            multiplied; 0 if they are multiplied as they are.
    """

    work: float
    sums: float
    least: float
    factors: float = 0.0

    @classmethod
    def from_precision(cls, precision: Precision) -> Rounding:
        """Return the rounding of a number format."""
        factors = precision.epsilon if precision.tf32 else 0.0
        return replace(cls.from_dtype(precision.work), factors=factors)

    @classmethod
    def from_dtype(cls, dtype: torch.dtype) -> Rounding:
        """Return the rounding of products that are summed, and given, in a format of numbers."""
        wide = torch.promote_types(dtype, torch.float32)
        eps = float(torch.finfo(dtype).eps)
        least = float(torch.finfo(dtype).smallest_normal) * eps
        return cls(eps, float(torch.finfo(wide).eps), least)

    @property
    def without_factors(self) -> Rounding:
        """The rounding of operators that do not multiply."""
        return replace(self, factors=0.0)

    def bound(
        self,
        norm: torch.Tensor,
        magnitude: torch.Tensor,
        terms: float,
        values: float,
        products: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return bounds of vectors' errors.

        Args:
            norm: The vectors' lengths.
            magnitude: The lengths of the sums of magnitudes that they are made of.
            terms: The number of terms of each sum.
            values: The number of values of each vector.
            products: The lengths of the sums of magnitudes of products; None: as `magnitude`.
        """
        products = magnitude if products is None else products
        rounded = norm + magnitude / math.sqrt(max(1.0, terms))
        below = self.least * math.sqrt(max(1.0, values))
        error = self.work * rounded + self.sums * magnitude + below + self.factors * products
        return SLACK * error


def new_worst_ratio() -> WorstError:
    """Return an accumulator of errors over their bounds, which are at most 1 if all is right."""
    return WorstError.with_tolerance(1.0)


@dataclass(frozen=True, slots=True)
class OperatorErrors:
    """The errors of operators.

    Attributes:
        single: Of single pixels, and of gradients of parameters.
        scales: Of the scales of whole tensors.
    """

    single: WorstError = field(default_factory=new_worst_ratio)
    scales: WorstError = field(default_factory=new_worst_ratio)


class ScaleError:
    """The error of a tensor's scale, part by part of the tensor.

    Args:
        rounding: The rounding of its format.
    """

    def __init__(self, rounding: Rounding) -> None:
        self._rounding = rounding
        self._product = self._random = self._largest = self._certain = 0.0

    def add(
        self,
        found: torch.Tensor,
        wanted: torch.Tensor,
        magnitude: torch.Tensor | float = 0.0,
        parts: torch.Tensor | float = 0.0,
        rounded: float = 1.0,
    ) -> None:
        """Take in a part of the tensor.

        Args:
            found: The values.
            wanted: The same in float64.
            magnitude: By value, the sums of magnitudes that they are made of.
            parts: By value, those of the parts of them that are rounded by themselves.
            rounded: The number of these parts.
        """
        if not found.numel() and not wanted.numel():
            return  # of a rank whose tile has no pixel left
        if found.shape != wanted.shape:
            self._product = math.inf
            return
        if wanted.dim() != 4:
            self._add(found, wanted, magnitude, parts, rounded)
            return
        for block in blocks(wanted.shape):
            near, own = (
                block.select(one) if isinstance(one, torch.Tensor) else one
                for one in (magnitude, parts)
            )
            self._add(block.select(found), block.select(wanted), near, own, rounded)

    def allow(self, certain: float) -> None:
        """Allow for errors that all may have one direction.

        Args:
            certain: The sum of the products of these errors' sizes and the values that they are in.
        """
        self._certain += certain

    def _add(
        self,
        found: torch.Tensor,
        wanted: torch.Tensor,
        magnitude: torch.Tensor | float,
        parts: torch.Tensor | float,
        rounded: float,
    ) -> None:
        rounding = self._rounding
        sizes = wanted.abs()
        most = ((sizes + parts) * rounding.work + rounding.least) * sizes / 2
        if rounding.factors:
            most = most + rounding.factors * magnitude * sizes
            self._certain += SLACK * rounding.factors * float(sizes.square().sum())
        self._product += float(((found.double() - wanted) * wanted).sum())
        self._random += float(most.square().sum())
        self._largest += float(most.sum())
        self._certain += float((STATISTICS_SLACK * rounding.sums * sizes * magnitude).sum())
        # Parts that are hardly more than the least number become 0, or it: all in one direction.
        largest = torch.maximum(sizes, torch.as_tensor(parts, dtype=sizes.dtype).to(sizes.device))
        lost = (largest < UNDERFLOW * rounded * rounding.least) * (rounded * rounding.least / 2)
        self._certain += float((lost * sizes).sum())

    @property
    def error(self) -> float:
        """The distance of the scale from 1, over its bound."""
        random = min(CONFIDENCE * math.sqrt(self._random), self._largest)
        return abs(self._product) / (random + self._certain + _TINY)


def worst_pixel(
    found: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor
) -> tuple[float, tuple[int, int]]:
    """Return the largest error of a pixel's channels over its bound, and that pixel's place.

    Args:
        found: ``batch x channels x rows x cols``.
        wanted: The same in float64.
        bound: The bounds, ``batch x rows x cols``.
    """
    if not found.numel() and not wanted.numel():
        return 0.0, (0, 0)
    if found.shape != wanted.shape:
        return math.inf, (0, 0)
    worst = 0.0
    place = (0, 0)
    for block in blocks(found.shape):
        errors = (block.select(found).double() - block.select(wanted)).square_().sum(1).sqrt()[0]
        ratios = errors / (bound[block.image, block.rows] + _TINY)
        ratios = torch.nan_to_num(ratios, nan=math.inf, posinf=math.inf)
        row, col = divmod(int(ratios.argmax()), ratios.shape[1])
        if float(ratios[row, col]) > worst:
            worst = float(ratios[row, col])
            place = (block.rows.start + row, col)
    return worst, place


def length(values: torch.Tensor) -> torch.Tensor:
    """Return the lengths of the channels of each pixel, ``batch x rows x cols``."""
    return values.square().sum(1).sqrt()
