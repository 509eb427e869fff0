"""Tiles in buffers that have space for the halo that the next operator reads.

An operator that computes all outputs at once reads the tile and its halo as one tensor. If the
operator before it writes the tile into the middle of such a buffer, the tile is not copied again.
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
    """The buffer that contains a tile.

    Attributes:
        buffer: ``batch x channels x rows x cols`` of the box.
        box: The pixels of the buffer: the tile and pixels around it.
        outside_fill: The value of pixels outside the image; None before they are written.
    """

    buffer: torch.Tensor
    box: Box
    outside_fill: float | None = None


def get_buffer(tile: torch.Tensor) -> TileBuffer | None:
    """Return the buffer that contains a tile; None if there is none."""
    return getattr(tile, "tile_buffer", None)


def copy_into_buffer(tile: torch.Tensor, tile_box: Box, box: Box) -> torch.Tensor:
    """Return a copy of a tile in a buffer; around it are NaNs until a halo is written.

    Args:
        tile: The values; they may be in a buffer already.
        tile_box: The pixels of the tile.
        box: The pixels that the next operator reads; they contain the tile.
    """
    tile_buffer = _allocate_buffer(tile, box)
    tile_buffer.buffer.fill_(torch.nan)
    return attach_buffer(view_box(tile_buffer.buffer, box, tile_box).copy_(tile), tile_buffer)


def attach_buffer(tile: torch.Tensor, tile_buffer: TileBuffer | None) -> torch.Tensor:
    """Attach its buffer to a tile, for the next operator; return the tile."""
    tile.tile_buffer = tile_buffer  # type: ignore[attr-defined]
    return tile


class PaddedReLU(nn.ReLU):
    """`torch.nn.ReLU` of a tile that leaves space around its output for a halo.

    Args:
        tile: The pixels of the tile.
        box: The pixels that the next operator reads; they contain the tile.
    """

    def __init__(self, tile: Box, box: Box) -> None:
        super().__init__()
        self._tile = tile
        self._box = box

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return the ReLU; inputs that are not this tile get no buffer."""
        if tile.dim() != 4 or tuple(tile.shape[2:]) != self._tile.shape:
            return super().forward(tile)
        tile_buffer = _allocate_buffer(tile, self._box)
        return attach_buffer(_ReLUIntoBuffer.apply(tile, tile_buffer, self._tile), tile_buffer)


def _allocate_buffer(tile: torch.Tensor, box: Box) -> TileBuffer:
    layout = torch.channels_last if is_channels_last(tile) else torch.contiguous_format
    buffer = torch.empty(
        (*tile.shape[:2], *box.shape), dtype=tile.dtype, device=tile.device, memory_format=layout
    )
    return TileBuffer(buffer, box)


class _ReLUIntoBuffer(Function):
    """ReLU that writes into the middle of a buffer."""

    @staticmethod
    def forward(
        ctx: Any, tile: torch.Tensor, tile_buffer: TileBuffer, tile_box: Box
    ) -> torch.Tensor:
        middle = view_box(tile_buffer.buffer, tile_buffer.box, tile_box)
        torch.clamp_min(tile, 0.0, out=middle)
        ctx.save_for_backward(middle)
        return middle

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (middle,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, middle, 0), None, None
