"""Spatial convolution of an image in tiles on different ranks, with halo exchange."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from spbench_core.layout.window import Pair, Window, Window2d, expand_pair
from spbench_parallel.device.convolution import convolve
from spbench_parallel.spatial.execution import LocalOperator
from spbench_parallel.spatial.gradients import share_parameters
from spbench_parallel.spatial.operator import TiledWindow
from spbench_parallel.spatial.tiling import Tiling


class SpatialConv2d(nn.Conv2d):
    """`torch.nn.Conv2d` of an image in tiles on different ranks.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. The output tiles
    form the convolution of the whole image. The gradients of weight and bias are summed over the
    tiles, so every rank has the gradients of the whole image. All ranks must call forward and
    backward in the same order.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Rows and columns; even and 1xk kernels are supported.
        stride: The strides of rows and columns.
        padding: Zeros around the whole image.
        dilation: Distance between taps in pixels.
        groups: Number of separate channel groups.
        bias: Whether to add a bias.
        tiling: The tiles of the input.
        gradient_dtype: The number format in which gradients of parameters are sent; None: the
            gradients' format.
        device: The device of the parameters.
        dtype: The number format of the parameters.

    Attributes:
        fill: The value outside the image.
        output: The tiles of the output.

    Raises:
        ValueError: The kernel is larger than the padded image.
    """

    fill = 0.0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        tiling: Tiling,
        gradient_dtype: torch.dtype | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            device=device,
            dtype=dtype,
        )
        self.window = make_window(kernel_size, stride, padding, dilation)
        self.tiled = TiledWindow(tiling, self.window)
        self.output = self.tiled.output
        self.gradient_dtype = gradient_dtype

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        return self.tiled.run(tile, self.operator())

    def operator(self) -> LocalOperator:
        """Return the convolution of pixels with their halos."""
        parameters = self.shared_parameters()
        return LocalOperator(
            lambda pixels, padding, _: self.local(pixels, padding, *parameters),
            self.out_channels,
            parameters,
        )

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        self.tiled.free()

    def shared_parameters(self) -> tuple[torch.Tensor, ...]:
        """Return weight and bias with gradients that are summed over the tiles."""
        parameters = (self.weight,) if self.bias is None else (self.weight, self.bias)
        return share_parameters(self.tiled.tiling.comm, parameters, self.gradient_dtype)

    def local(
        self,
        pixels: torch.Tensor,
        padding: tuple[int, int],
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Convolve pixels with their halos."""
        pixels = self.read(pixels)
        return convolve(pixels, weight, bias, self.stride, padding, self.dilation, self.groups)

    def read(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the pixels that the kernel reads: here all of them."""
        return pixels


def make_window(kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = 1) -> Window2d:
    """Return the window of torch's arguments: one number for both axes, or two."""
    axes = zip(
        expand_pair(kernel),
        expand_pair(stride),
        expand_pair(padding),
        expand_pair(dilation),
        strict=True,
    )
    rows, cols = (Window(*axis) for axis in axes)
    return Window2d(rows, cols)
