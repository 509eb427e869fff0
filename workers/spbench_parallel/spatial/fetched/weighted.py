"""Weighted sums along both axes: resizing, and average pools whose windows are not all alike.

An output is a sum over some rows and some columns of pixels, each with a weight for its row and one
for its column.
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

_FEW = 4
"""Taps of an output that are added one after the other; more are a product of matrices."""


@dataclass(frozen=True, eq=False)
class Taps:
    """The pixels along an axis that each output reads, and their weights.

    Attributes:
        places: ``outputs x taps``, in int64; a tap that counts nothing is at another's place.
        weights: Likewise, in float64.
    """

    indices: torch.Tensor
    weights: torch.Tensor

    def needed(self, outputs: Interval) -> Interval:
        """Return the pixels that some outputs read."""
        places = self.indices[slice(*outputs)]
        return (int(places.min()), int(places.max()) + 1) if places.numel() else (0, 0)

    def __len__(self) -> int:
        return len(self.indices)


class SpatialWeightedSums(FetchingOperator):
    """Weighted sums of an image whose tiles are on different ranks.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. All ranks must call
    forward, and backward, in the same order.

    Args:
        rows: What outputs read along the rows' axis.
        cols: Likewise, of columns.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
    """

    def __init__(self, rows: Taps, cols: Taps, *, tiling: Tiling) -> None:
        super().__init__()
        self.output = tiling.resized(len(rows), len(cols))
        tile_of = self.output.partition.tile
        self._fetch = FetchedBox(
            tiling,
            lambda rank: Box(rows.needed(tile_of(rank).rows), cols.needed(tile_of(rank).cols)),
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
            values = axis.of(values)
        return values


class _AxisSum:
    """The sums of some outputs along an axis, from the pixels that they read."""

    def __init__(self, taps: Taps, outputs: Interval, pixels: Interval, axis: int) -> None:
        self._places = taps.indices[slice(*outputs)] - pixels[0]
        self._weights = taps.weights[slice(*outputs)]
        self._length = pixels[1] - pixels[0]
        self._axis = axis
        self._made: dict[Any, torch.Tensor] = {}

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sums."""
        if self._places.shape[1] > _FEW:
            matrix = self._on(values, "matrix", self._matrix)
            return matrix @ values if self._axis == 2 else values @ matrix.T
        places = self._places.to(values.device)
        parts = [values.index_select(self._axis, one) for one in places.T]
        if len(parts) == 1 and bool((self._weights == 1.0).all()):
            return parts[0]
        weights = self._on(values, "weights", lambda: self._weights)
        shape = (-1, 1) if self._axis == 2 else (-1,)
        total = parts[0] * weights[:, 0].reshape(shape)
        for at, part in enumerate(parts[1:], start=1):
            total = total + part * weights[:, at].reshape(shape)
        return total

    def _matrix(self) -> torch.Tensor:
        matrix = torch.zeros(len(self._places), self._length, dtype=torch.float64)
        return matrix.scatter_add_(1, self._places, self._weights)

    def _on(
        self, values: torch.Tensor, name: str, make: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        """Return numbers in the format and on the device of values."""
        key = name, values.dtype, values.device
        if key not in self._made:
            self._made[key] = make().to(values.device, values.dtype)
        return self._made[key]


def resizing_taps(
    length: int,
    outputs: int,
    mode: str,
    *,
    align_corners: bool | None = None,
    scale_factor: float | None = None,
) -> Taps:
    """Return what outputs of torch's ``interpolate`` read along an axis.

    Args:
        length: Pixels of the input.
        outputs: Those of the output.
        mode: ``nearest``, ``nearest-exact`` or ``bilinear``.
        align_corners: As torch has it.
        scale_factor: The factor that is taken for the ratio of both, where one is.
    """
    # Torch itself says where outputs lie: of a ramp, the value is the place.
    ramp = torch.arange(length, dtype=torch.float64)[None, None, :, None]
    words: dict[str, Any] = {"mode": mode, "align_corners": align_corners}
    if scale_factor is None:
        words["size"] = (outputs, 1)
    else:
        words |= {"scale_factor": (scale_factor, 1.0), "recompute_scale_factor": False}
    places = functional.interpolate(ramp, **words).flatten()
    first = places.floor().long()
    if mode != "bilinear":
        return Taps(first[:, None], torch.ones(outputs, 1, dtype=torch.float64))
    share = places - first
    both = torch.stack((first, (first + 1).clamp(max=length - 1)), 1)
    return Taps(both, torch.stack((1.0 - share, share), 1))


def adaptive_taps(length: int, outputs: int) -> Taps:
    """Return what outputs of torch's ``adaptive_avg_pool2d`` read along an axis."""
    windows = [(at * length // outputs, -(-(at + 1) * length // outputs)) for at in range(outputs)]
    return _means(windows, [last - first for first, last in windows])


def pooling_taps(
    length: int,
    outputs: int,
    kernel: int,
    stride: int,
    padding: int,
    *,
    counts_padding: bool,
    divisor: int | None = None,
) -> Taps:
    """Return what outputs of torch's ``avg_pool2d`` read along an axis, with ``ceil_mode`` too.

    Args:
        length: Pixels of the input.
        outputs: Those of the output.
        kernel: As torch has it.
        stride: Likewise.
        padding: Likewise.
        counts_padding: Whether padding counts in the mean.
        divisor: By what sums are divided; None: by what counts.
    """
    windows = []
    counts = []
    for at in range(outputs):
        first = at * stride - padding
        last = min(first + kernel, length + padding)
        inside = max(first, 0), min(last, length)
        windows.append(inside)
        counted = last - first if counts_padding else inside[1] - inside[0]
        counts.append(divisor or counted)
    return _means(windows, counts)


def _means(windows: Sequence[Interval], counts: Sequence[int]) -> Taps:
    taps = max(last - first for first, last in windows)
    steps = torch.arange(taps)
    first, last = (torch.tensor(one)[:, None] for one in zip(*windows, strict=True))
    places = torch.minimum(first + steps, last - 1)
    weights = (first + steps < last).double() / torch.tensor(counts)[:, None]
    return Taps(places, weights)
