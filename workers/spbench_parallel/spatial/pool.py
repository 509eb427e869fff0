"""Spatial max and average pooling of an image in tiles on different ranks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Pair, Window, Window2d
from spbench_parallel.spatial.conv import make_window
from spbench_parallel.spatial.execution import LocalOperator
from spbench_parallel.spatial.operator import TiledWindow
from spbench_parallel.spatial.tiling import Tiling


class TiledPool(nn.Module, ABC):
    """A pooling over tiles.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. The output tiles
    form the pooling of the whole image. All ranks must call forward and backward in the same order.

    Attributes:
        tiled: Gathers the halos.
    """

    tiled: TiledWindow

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        return self.tiled.run(tile, LocalOperator(self.local, tile.shape[1], ()))

    @abstractmethod
    def local(self, pixels: torch.Tensor, padding: tuple[int, int], outputs: Box) -> torch.Tensor:
        """Pool pixels with their halos."""

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        self.tiled.free()


class SpatialMaxPool2d(TiledPool, nn.MaxPool2d):
    """`torch.nn.MaxPool2d` of an image in tiles; see `TiledPool`.

    Args:
        kernel_size: Rows and columns.
        stride: The strides of rows and columns; None: the kernel size.
        padding: Padding around the whole image; at most half the kernel.
        dilation: Distance between taps in pixels.
        tiling: The tiles of the input.

    Attributes:
        fill: The value outside the image: minus infinity, which is never the maximum.
        output: The tiles of the output.

    Raises:
        ValueError: The kernel is larger than the padded image, the padding exceeds half the
            kernel, or a window has no pixel of the image.
    """

    fill = -math.inf

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        *,
        tiling: Tiling,
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation)
        self.window = _make_pool_window(kernel_size, stride, padding, dilation)
        self.tiled = TiledWindow(tiling, self.window, self.fill)
        _reject_empty_windows(self.window, tiling)
        self.output = self.tiled.output

    def local(
        self, pixels: torch.Tensor, padding: tuple[int, int], outputs: Box | None = None
    ) -> torch.Tensor:
        """Pool pixels with their halos; the position of the outputs is not used."""
        return functional.max_pool2d(pixels, self.kernel_size, self.stride, padding, self.dilation)


class SpatialAvgPool2d(TiledPool, nn.AvgPool2d):
    """`torch.nn.AvgPool2d` of an image in tiles; see `TiledPool`.

    Args:
        kernel_size: Rows and columns.
        stride: The strides of rows and columns; None: the kernel size.
        padding: Zeros around the whole image; at most half the kernel.
        count_include_pad: Whether padding counts in the mean.
        tiling: The tiles of the input.

    Attributes:
        fill: The value outside the image.
        output: The tiles of the output.

    Raises:
        ValueError: The kernel is larger than the padded image, or the padding exceeds half the
            kernel.
    """

    fill = 0.0

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        count_include_pad: bool = True,
        *,
        tiling: Tiling,
    ) -> None:
        super().__init__(kernel_size, stride, padding, count_include_pad=count_include_pad)
        self.window = _make_pool_window(kernel_size, stride, padding)
        self.tiled = TiledWindow(tiling, self.window, self.fill)
        self.output = self.tiled.output
        self._correction_by_key: dict[Any, torch.Tensor | None] = {}

    def local(self, pixels: torch.Tensor, padding: tuple[int, int], outputs: Box) -> torch.Tensor:
        """Pool pixels with their halos.

        Args:
            pixels: The pixels that the outputs read, with zeros outside the image.
            padding: Rows and columns of padding that the pooling adds: none, or the whole padding.
            outputs: The box of the outputs, in coordinates of the whole output.
        """
        means = functional.avg_pool2d(
            pixels,
            self.kernel_size,
            self.stride,
            padding,
            count_include_pad=self.count_include_pad,
        )
        if self.count_include_pad:
            return means
        correction = self._make_mean_correction(means, padding, outputs)
        return means if correction is None else means * correction

    def _make_mean_correction(
        self, means: torch.Tensor, padding: tuple[int, int], outputs: Box
    ) -> torch.Tensor | None:
        """Return the factor from window means to means of image pixels; None if it is 1."""
        key = (padding, outputs, means.dtype, means.device)
        if key not in self._correction_by_key:
            partition = self.tiled.tiling.partition
            row_correction = _make_axis_correction(
                self.window.rows, padding[0], outputs.rows, partition.height
            )
            col_correction = _make_axis_correction(
                self.window.cols, padding[1], outputs.cols, partition.width
            )
            correction = row_correction[:, None] * col_correction
            has_effect = bool((correction != 1.0).any())
            self._correction_by_key[key] = (
                correction.to(means.device, means.dtype) if has_effect else None
            )
        return self._correction_by_key[key]


def _make_pool_window(
    kernel: Pair, stride: Pair | None, padding: Pair, dilation: Pair = 1
) -> Window2d:
    """Return the window of a pooling.

    Raises:
        ValueError: Torch rejects this padding.
    """
    window = make_window(kernel, kernel if stride is None else stride, padding, dilation)
    for axis in (window.rows, window.cols):
        if 2 * axis.padding > axis.kernel:
            raise ValueError(
                f"padding {axis.padding} is more than half of a pooling kernel of {axis.kernel}; "
                f"make it {axis.kernel // 2} or less"
            )
    return window


def _make_axis_correction(
    window: Window, padding: int, outputs: Interval, image_length: int
) -> torch.Tensor:
    """Return, per output along an axis, the window's taps over its taps in the image.

    If torch adds the padding, it excludes the padding from the mean, and the factor is 1.
    """
    if padding:
        return torch.ones(outputs[1] - outputs[0], dtype=torch.float64)
    first_taps = torch.arange(*outputs) * window.stride - window.padding
    taps_in_image = (first_taps + window.kernel).clamp(max=image_length) - first_taps.clamp(min=0)
    # Fused layers compute outputs outside the image too. Their value is not used, so any will do.
    return window.kernel / taps_in_image.clamp(min=1).double()


def _reject_empty_windows(window: Window2d, tiling: Tiling) -> None:
    """Reject windows without a pixel of the image.

    With them, torch's backward would write beyond its memory.

    Raises:
        ValueError: All taps of a window are in the padding, which dilation makes possible.
    """
    height = tiling.partition.height
    width = tiling.partition.width
    for axis, length in ((window.rows, height), (window.cols, width)):
        for output in range(axis.count_outputs(length)):
            first_tap = axis.find_inputs((output, output + 1))[0]
            taps = range(first_tap, first_tap + axis.span, axis.dilation)
            if not any(0 <= tap < length for tap in taps):
                raise ValueError(
                    f"output {output} of the maximum pool has no pixel of the {length} of its "
                    f"axis, only padding; take less padding than {axis.padding}"
                )
