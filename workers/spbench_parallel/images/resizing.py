"""Bilinear resizing of images, box by box: each pixel is the same whatever the box around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spbench_core.layout.tiles import Box, Interval

Pixels = np.ndarray[Any, np.dtype[Any]]
"""``channels x rows x cols``."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Source pixels of an interval: two neighbours for each pixel, and the second one's share."""

    first: Pixels
    second: Pixels
    share: Pixels

    @property
    def needs(self) -> Interval:
        return (int(self.first[0]), int(self.second[-1]) + 1)


class BilinearResize:
    """A bilinear resizing of a box of an image, as torch's ``interpolate`` does it.

    A pixel is drawn from the four around its middle, also where the image becomes smaller. It is
    computed by numpy, one operation after the other: torch's own may round otherwise at the end of
    a row than amid it, so that a tile's pixels would not be the whole image's.

    Args:
        source: Height and width of the given image.
        target: Height and width of the resized image.
        box: The box of the resized image that is wanted; not empty.

    Attributes:
        needs: The pixels of the given image that the box is made of.
    """

    def __init__(self, source: tuple[int, int], target: tuple[int, int], box: Box) -> None:
        self._rows = _axis(box.rows, source[0], target[0])
        self._cols = _axis(box.cols, source[1], target[1])
        self.needed = Box(self._rows.needs, self._cols.needs)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the box in fp32, from the pixels that it needs."""
        rows = self._rows
        cols = self._cols
        top = self.needed.rows[0]
        left = self.needed.cols[0]
        values = pixels.astype(np.float32)
        values = _between(
            values[:, rows.first - top],
            values[:, rows.second - top],
            rows.share[:, np.newaxis],
        )
        return _between(
            values[:, :, cols.first - left], values[:, :, cols.second - left], cols.share
        )


def _axis(interval: Interval, source: int, target: int) -> _Axis:
    middles = (np.arange(*interval) + 0.5) * (source / target) - 0.5
    middles = np.clip(middles, 0, source - 1)
    first = middles.astype(np.int64)
    second = np.minimum(first + 1, source - 1)
    return _Axis(first, second, (middles - first).astype(np.float32))


def _between(one: Pixels, other: Pixels, share: Pixels) -> Pixels:
    values: Pixels = one + (other - one) * share
    return values
