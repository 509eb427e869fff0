"""Shifted convolution: 1x1, of the pixels at odd rows and columns, halving height and width.

It is the second half of a factorized reduce (NASNet, AmoebaNet): a convolution of stride 2 on an
image that is shifted by one pixel. Of an odd number of rows or columns it leaves out the last,
where the shift has moved in zeros.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.spatial.conv import SpatialConv2d, make_window
from spbench_parallel.spatial.operator import TiledWindow
from spbench_parallel.spatial.tiling import Tiling


class ShiftedConv2d(nn.Conv2d):
    """The shifted convolution of a whole image, without bias."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 1, stride=2, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the convolution: ``batch x out_channels x height // 2 x width // 2``."""
        return functional.conv2d(image[:, :, 1::2, 1::2], self.weight)


class SpatialShiftedConv2d(SpatialConv2d):
    """The shifted convolution of an image in tiles, one a rank; see `SpatialConv2d`."""

    def __init__(self, in_channels: int, out_channels: int, *, tiling: Tiling) -> None:
        super().__init__(in_channels, out_channels, 1, bias=False, tiling=tiling)
        # Of each 2x2 pixels the last is read: a window of one pixel cannot say so.
        self.window = make_window(2, 2, 0)
        self.tiled = TiledWindow(tiling, self.window)
        self.output = self.tiled.output

    def read(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the last of each 2x2 pixels, which begin at an even row and column."""
        return pixels[:, :, 1::2, 1::2]
