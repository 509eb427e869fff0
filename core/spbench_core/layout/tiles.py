"""Grids of tiles: the part of an image that each rank of a spatial stage holds.

A grid cuts an image into ``rows x cols`` tiles, numbered row by row. Bounds along an axis are
balanced: tile ``i`` of ``p`` over ``n`` pixels is ``[i*n//p, (i+1)*n//p)``, so that the sizes of
tiles differ by at most one pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from spbench_core.number_text import TooManyDigitsError, parse_whole

Interval = tuple[int, int]
"""Half-open: ``(first, one past the last)``."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of pixels, ``rows x cols`` of half-open intervals."""

    rows: Interval
    cols: Interval

    @property
    def height(self) -> int:
        """Pixels from top to bottom; 0 for an empty box."""
        return max(0, self.rows[1] - self.rows[0])

    @property
    def width(self) -> int:
        """Pixels from left to right; 0 for an empty box."""
        return max(0, self.cols[1] - self.cols[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    @property
    def empty(self) -> bool:
        """Whether the box holds no pixel."""
        return self.height == 0 or self.width == 0

    def intersect(self, other: Box) -> Box:
        """Return the pixels that are in both boxes."""
        return Box(
            _intersect_intervals(self.rows, other.rows), _intersect_intervals(self.cols, other.cols)
        )

    def grow(self, by: int, within: Box) -> Box:
        """Return the box with ``by`` more pixels on each side, limited to ``within``."""
        rows = (self.rows[0] - by, self.rows[1] + by)
        cols = (self.cols[0] - by, self.cols[1] + by)
        return Box(rows, cols).intersect(within)


def _intersect_intervals(first: Interval, second: Interval) -> Interval:
    return max(first[0], second[0]), min(first[1], second[1])


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of ``rows x cols`` tiles; tile ``t`` is in row ``t // cols``."""

    rows: int
    cols: int

    @property
    def size(self) -> int:
        """Number of tiles."""
        return self.rows * self.cols

    def tile(self, index: int, height: int, width: int) -> Box:
        """Return the pixels of a tile in an image of ``height x width`` pixels."""
        row, col = divmod(index, self.cols)
        return Box(
            compute_part_bounds(row, self.rows, height), compute_part_bounds(col, self.cols, width)
        )

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"


def compute_part_bounds(index: int, parts: int, length: int) -> Interval:
    """Return the balanced interval of a part of ``length`` pixels."""
    return index * length // parts, (index + 1) * length // parts


@lru_cache(maxsize=1024)
def parse_pair(text: int | str, minimum: int = 1) -> tuple[int, int]:
    """Parse ``N`` (meaning NxN) or ``RxC``.

    Raises:
        ValueError: The text is neither, or a number is below ``minimum``.
    """
    rows_text, cross, cols_text = str(text).strip().lower().partition("x")
    try:
        pair = (parse_whole(rows_text), parse_whole(cols_text if cross else rows_text))
    except TooManyDigitsError:
        raise
    except ValueError:
        raise ValueError(f"{text!r} is neither N nor RxC") from None
    if min(pair) < minimum:
        raise ValueError(f"{text!r} has a number below {minimum}")
    return pair


def format_pair(pair: tuple[int, int]) -> int | str:
    """Return a pair for `parse_pair`, as one number if both are equal."""
    return pair[0] if pair[0] == pair[1] else f"{pair[0]}x{pair[1]}"


def make_grid(slice_method: str, parts: int) -> Grid:
    """Return the grid of ``parts`` tiles by a slice method.

    ``vertical`` cuts the width into strips, ``horizontal`` the height, and ``square`` both into the
    same number.

    Raises:
        ValueError: The method is ``square`` and the number is not a square.
    """
    if slice_method == "vertical":
        return Grid(1, parts)
    if slice_method == "horizontal":
        return Grid(parts, 1)
    side = math.isqrt(parts)
    if side * side != parts:
        lower_square = side * side
        upper_square = (side + 1) ** 2
        raise ValueError(
            f"{parts} tiles make no square (the nearest that do: {lower_square}, {upper_square})"
        )
    return Grid(side, side)
