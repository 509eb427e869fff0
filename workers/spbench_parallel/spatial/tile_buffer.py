"""Padded tiles: a tile in a buffer with room for the halo that the next operator reads.

An operator over tiles that computes all outputs at once reads the tile and its halo as one tensor.
Where the operator before it writes the tile into the middle of that, it is not copied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.exchange import is_channels_last, view_box


@dataclass(slots=True, eq=False)
class TileBuffer:
    """The buffer that a tile lies in.

    Attributes:
        buffer: ``batch x channels x rows x cols`` of the box.
        box: The pixels of the buffer, some of them beyond the tile.
        beyond: The value that pixels beyond the image have; None before they have been written.
    """

    buffer: torch.Tensor
    box: Box
    outside_fill: float | None = None


def get_buffer(tile: torch.Tensor) -> TileBuffer | None:
    """Return the buffer that a tile lies in; None where it has no room around it."""
    return getattr(tile, "padded", None)


def copy_into_buffer(tile: torch.Tensor, place: Box, box: Box) -> torch.Tensor:
    """Return a copy of a tile with room around it, which holds NaN until a halo is written there.

    Args:
        tile: The values; they may lie in a buffer already.
        place: The pixels of the tile.
        box: The pixels that the next operator reads; they hold the tile.
    """
    padded = _buffer_like(tile, box)
    padded.buffer.fill_(torch.nan)
    return attach_buffer(view_box(padded.buffer, box, place).copy_(tile), padded)


def attach_buffer(tile: torch.Tensor, padded: TileBuffer | None) -> torch.Tensor:
    """Return the same tile, of which the next operator knows the buffer that it lies in."""
    tile.padded = padded  # type: ignore[attr-defined]
    return tile


class PaddedReLU(nn.ReLU):
    """`torch.nn.ReLU` of a tile, whose output has room for the next operator's halo around it.

    Args:
        tile: The pixels of the tile.
        box: The pixels that the next operator reads; they hold the tile.
    """

    def __init__(self, tile: Box, box: Box) -> None:
        super().__init__()
        self._tile = tile
        self._box = box

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return the positive values, and 0 in place of others; of other pixels without room."""
        if tile.dim() != 4 or tuple(tile.shape[2:]) != self._tile.shape:
            return super().forward(tile)
        padded = _buffer_like(tile, self._box)
        return attach_buffer(_ReLUInto.apply(tile, padded, self._tile), padded)


def _buffer_like(tile: torch.Tensor, box: Box) -> TileBuffer:
    layout = torch.channels_last if is_channels_last(tile) else torch.contiguous_format
    buffer = torch.empty(
        (*tile.shape[:2], *box.shape), dtype=tile.dtype, device=tile.device, memory_format=layout
    )
    return TileBuffer(buffer, box)


class _ReLUInto(Function):
    """ReLU into the middle of a buffer."""

    @staticmethod
    def forward(ctx: Any, tile: torch.Tensor, padded: TileBuffer, place: Box) -> torch.Tensor:
        middle = view_box(padded.buffer, padded.box, place)
        torch.clamp_min(tile, 0.0, out=middle)
        ctx.save_for_backward(middle)
        return middle

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (middle,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, middle, 0), None, None
