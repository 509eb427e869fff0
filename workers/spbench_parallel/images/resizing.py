"""Bilinear resizing of images, with the same pixels for any box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spbench_core.layout.tiles import Box, Interval

Pixels = np.ndarray[Any, np.dtype[Any]]
"""``channels x rows x cols``."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Source pixels of an interval: two neighbours per pixel, and the second's weight."""

    first: Pixels
    second: Pixels
    share: Pixels

    @property
    def needs(self) -> Interval:
        return (int(self.first[0]), int(self.second[-1]) + 1)


class BilinearResize:
    """A bilinear resizing of a box of an image, like torch's ``interpolate``.

    A pixel is interpolated from the four pixels around its centre, also if the image becomes
    smaller. numpy computes it, one operation after the other. Torch may round differently at the
    end of a row than within it, and then tiles would differ from the whole image.

    Args:
        source: Height and width of the original image.
        target: Height and width of the resized image.
        box: The requested box of the resized image; not empty.

    Attributes:
        needed: The pixels of the original image that the box depends on.
    """

    def __init__(self, source: tuple[int, int], target: tuple[int, int], box: Box) -> None:
        self._rows = _make_axis_sources(box.rows, source[0], target[0])
        self._cols = _make_axis_sources(box.cols, source[1], target[1])
        self.needed = Box(self._rows.needs, self._cols.needs)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the box in fp32, from the pixels that it needs."""
        rows = self._rows
        cols = self._cols
        top = self.needed.rows[0]
        left = self.needed.cols[0]
        resized = pixels.astype(np.float32)
        resized = _interpolate(
            resized[:, rows.first - top],
            resized[:, rows.second - top],
            rows.share[:, np.newaxis],
        )
        return _interpolate(
            resized[:, :, cols.first - left], resized[:, :, cols.second - left], cols.share
        )


def _make_axis_sources(interval: Interval, source_length: int, target_length: int) -> _Axis:
    centres = (np.arange(*interval) + 0.5) * (source_length / target_length) - 0.5
    centres = np.clip(centres, 0, source_length - 1)
    first_indices = centres.astype(np.int64)
    second_indices = np.minimum(first_indices + 1, source_length - 1)
    return _Axis(first_indices, second_indices, (centres - first_indices).astype(np.float32))


def _interpolate(first: Pixels, second: Pixels, share: Pixels) -> Pixels:
    values: Pixels = first + (second - first) * share
    return values
