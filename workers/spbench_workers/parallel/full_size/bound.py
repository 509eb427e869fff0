"""Error bounds of a number format, and the worst error of many over their bounds.

An operator sums ``n`` products. Its result is rounded to the format in which it works, and so are
parts of it that are computed and added one after the other; products are summed in the wider format
of accumulation. The bound of a vector ``v`` is

    SLACK * (u * (|v| + m / sqrt(n)) + a * m)

with ``u`` and ``a`` the distances from 1 to the next number of the two formats, and ``m`` the sum
of magnitudes that the vector is made of, by the inequality of Cauchy and Schwarz: what random
rounding leaves, of a sum and of its parts. Vectors are the channels of one pixel, over which errors
even out, so that a wrong border of one pixel stands out in any format.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from spbench_workers.parallel.precision.formats import Precision

SLACK = 2.0
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Rounding:
    """The rounding of a number format.

    Attributes:
        work: From 1 to the next number of the format of products and maps.
        sums: The same of the format in which they are summed.
        least: From 0 to the next number of the format of maps.
    """

    work: float
    sums: float
    least: float

    @classmethod
    def of(cls, precision: Precision) -> Rounding:
        """Return the rounding of a number format."""
        wide = torch.promote_types(precision.work, torch.float32)
        least = float(torch.finfo(precision.work).smallest_normal) * precision.epsilon
        return cls(precision.epsilon, float(torch.finfo(wide).eps), least)

    def bound(
        self, norm: torch.Tensor, magnitude: torch.Tensor, terms: float, values: float
    ) -> torch.Tensor:
        """Return bounds of vectors' errors.

        Args:
            norm: The vectors' lengths.
            magnitude: The lengths of the sums of magnitudes that they are made of.
            terms: The number of terms of each sum.
            values: The number of values of each vector.
        """
        rounded = norm + magnitude / math.sqrt(max(1.0, terms))
        below = self.least * math.sqrt(max(1.0, values))
        return SLACK * (self.work * rounded + self.sums * magnitude + below)


@dataclass(slots=True)
class WorstError:
    """The worst error so far, over its bound, and where it is; 0 before any."""

    error: float = 0.0
    where: str = ""

    def note(self, error: float, where: str) -> None:
        """Take in an error over its bound. What is not a number is worse than any."""
        error = math.inf if math.isnan(error) else error
        if error > self.error:
            self.error, self.where = error, where


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
    ratios = (found.double() - wanted).square().sum(1).sqrt() / (bound + _TINY)
    ratios = torch.nan_to_num(ratios, nan=math.inf, posinf=math.inf)
    place = int(ratios.argmax())
    row, col = divmod(place % (ratios.shape[1] * ratios.shape[2]), ratios.shape[2])
    return float(ratios.flatten()[place]), (row, col)


def length(values: torch.Tensor) -> torch.Tensor:
    """Return the lengths of the channels of each pixel, ``batch x rows x cols``."""
    return values.square().sum(1).sqrt()
