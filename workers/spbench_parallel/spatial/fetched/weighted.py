"""Weighted sums along both axes: resizing, and irregular average pools.

An output is a sum over some rows and some columns of pixels. Each pixel has a weight for its row
and one for its column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.spatial.fetched.box import FetchedBox, FetchingOperator
from spbench_parallel.spatial.tiling import Tiling

# Up to this number of taps per output are added one by one; more become a matrix product.
_MAX_SINGLE_TAPS = 4


@dataclass(frozen=True, eq=False)
class Taps:
    """The pixels along an axis that each output reads, and their weights.

    Attributes:
        indices: ``outputs x taps``, in int64. An unused tap has the index of another one and weight
            0.
        weights: ``outputs x taps``, in float64.
    """

    indices: torch.Tensor
    weights: torch.Tensor

    def read_interval(self, outputs: Interval) -> Interval:
        """Return the interval of pixels that some outputs read."""
        indices = self.indices[slice(*outputs)]
        return (int(indices.min()), int(indices.max()) + 1) if indices.numel() else (0, 0)

    def __len__(self) -> int:
        return len(self.indices)


class SpatialWeightedSums(FetchingOperator):
    """Weighted sums of an image in tiles on different ranks.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. All ranks must call
    forward and backward in the same order.

    Args:
        rows: The taps of outputs along the rows.
        cols: The taps of outputs along the columns.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
    """

    def __init__(self, rows: Taps, cols: Taps, *, tiling: Tiling) -> None:
        super().__init__()
        self.output = tiling.resized(len(rows), len(cols))
        find_output_tile = self.output.partition.tile
        self._fetch = FetchedBox(
            tiling,
            lambda rank: Box(
                rows.read_interval(find_output_tile(rank).rows),
                cols.read_interval(find_output_tile(rank).cols),
            ),
        )
        self.fetches = (self._fetch,)
        box = self._fetch.box
        tile = self.output.tile
        self._axes = (
            _AxisSum(rows, tile.rows, box.rows, 2),
            _AxisSum(cols, tile.cols, box.cols, 3),
        )

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        values = self._fetch.fetch(tile)
        for axis in self._axes:
            values = axis.apply(values)
        return values


class _AxisSum:
    """The sums of some outputs along an axis, from the pixels that they read."""

    def __init__(self, taps: Taps, outputs: Interval, pixels: Interval, axis: int) -> None:
        self._indices = taps.indices[slice(*outputs)] - pixels[0]
        self._weights = taps.weights[slice(*outputs)]
        self._length = pixels[1] - pixels[0]
        self._axis = axis
        self._converted: dict[Any, torch.Tensor] = {}

    def apply(self, values: torch.Tensor) -> torch.Tensor:
        if self._indices.shape[1] > _MAX_SINGLE_TAPS:
            matrix = self._convert(values, "matrix", self._matrix)
            return matrix @ values if self._axis == 2 else values @ matrix.T
        indices = self._indices.to(values.device)
        values_by_tap = [values.index_select(self._axis, index) for index in indices.T]
        if len(values_by_tap) == 1 and bool((self._weights == 1.0).all()):
            return values_by_tap[0]
        weights = self._convert(values, "weights", lambda: self._weights)
        shape = (-1, 1) if self._axis == 2 else (-1,)
        total = values_by_tap[0] * weights[:, 0].reshape(shape)
        for tap, tap_values in enumerate(values_by_tap[1:], start=1):
            total = total + tap_values * weights[:, tap].reshape(shape)
        return total

    def _matrix(self) -> torch.Tensor:
        matrix = torch.zeros(len(self._indices), self._length, dtype=torch.float64)
        return matrix.scatter_add_(1, self._indices, self._weights)

    def _convert(
        self, values: torch.Tensor, name: str, make: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        """Return numbers in the format and on the device of values."""
        key = name, values.dtype, values.device
        if key not in self._converted:
            self._converted[key] = make().to(values.device, values.dtype)
        return self._converted[key]


def make_resizing_taps(
    length: int,
    outputs: int,
    mode: str,
    *,
    align_corners: bool | None = None,
    scale_factor: float | None = None,
) -> Taps:
    """Return the taps of torch's ``interpolate`` along an axis.

    Args:
        length: Pixels of the input.
        outputs: Pixels of the output.
        mode: ``nearest``, ``nearest-exact`` or ``bilinear``.
        align_corners: See torch.
        scale_factor: The factor, if it replaces the ratio of the sizes.
    """
    # Let torch compute the source positions: the value of a ramp is its position.
    ramp = torch.arange(length, dtype=torch.float64)[None, None, :, None]
    arguments: dict[str, Any] = {"mode": mode, "align_corners": align_corners}
    if scale_factor is None:
        arguments["size"] = (outputs, 1)
    else:
        arguments |= {"scale_factor": (scale_factor, 1.0), "recompute_scale_factor": False}
    positions = functional.interpolate(ramp, **arguments).flatten()
    lower_indices = positions.floor().long()
    if mode != "bilinear":
        return Taps(lower_indices[:, None], torch.ones(outputs, 1, dtype=torch.float64))
    upper_share = positions - lower_indices
    neighbours = torch.stack((lower_indices, (lower_indices + 1).clamp(max=length - 1)), 1)
    return Taps(neighbours, torch.stack((1.0 - upper_share, upper_share), 1))


def make_adaptive_taps(length: int, outputs: int) -> Taps:
    """Return the taps of torch's ``adaptive_avg_pool2d`` along an axis."""
    read_intervals = [
        (output * length // outputs, -(-(output + 1) * length // outputs))
        for output in range(outputs)
    ]
    return _make_mean_taps(read_intervals, [last - first for first, last in read_intervals])


def make_pooling_taps(
    length: int,
    outputs: int,
    kernel: int,
    stride: int,
    padding: int,
    *,
    counts_padding: bool,
    divisor: int | None = None,
) -> Taps:
    """Return the taps of torch's ``avg_pool2d`` along an axis.

    ``ceil_mode`` is supported.

    Args:
        length: Pixels of the input.
        outputs: Pixels of the output.
        kernel: See torch.
        stride: See torch.
        padding: See torch.
        counts_padding: Whether padding counts in the mean.
        divisor: The divisor of the sums; None: the number of pixels that count.
    """
    read_intervals = []
    divisors = []
    for output in range(outputs):
        first_pixel = output * stride - padding
        end_pixel = min(first_pixel + kernel, length + padding)
        inside = max(first_pixel, 0), min(end_pixel, length)
        read_intervals.append(inside)
        counted = end_pixel - first_pixel if counts_padding else inside[1] - inside[0]
        divisors.append(divisor or counted)
    return _make_mean_taps(read_intervals, divisors)


def _make_mean_taps(read_intervals: Sequence[Interval], divisors: Sequence[int]) -> Taps:
    tap_count = max(end_pixels - first_pixels for first_pixels, end_pixels in read_intervals)
    tap_offsets = torch.arange(tap_count)
    first_pixels, end_pixels = (
        torch.tensor(ends)[:, None] for ends in zip(*read_intervals, strict=True)
    )
    indices = torch.minimum(first_pixels + tap_offsets, end_pixels - 1)
    weights = (first_pixels + tap_offsets < end_pixels).double() / torch.tensor(divisors)[:, None]
    return Taps(indices, weights)
