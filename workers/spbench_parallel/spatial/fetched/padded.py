"""Operators on padded images in tiles: convolution, max pooling, and padding."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Pair, Window, Window2d
from spbench_parallel.device.convolution import convolve
from spbench_parallel.spatial.conv import make_window
from spbench_parallel.spatial.fetched.box import FetchingOperator, PaddedBox
from spbench_parallel.spatial.gradients import share_weights
from spbench_parallel.spatial.tiling import Tiling

Pads = tuple[int, int, int, int]
"""Pixels to add around an image: left, right, top, bottom (torch's order); negative: crop."""


class SpatialPad2d(FetchingOperator):
    """`torch.nn.functional.pad` of an image in tiles; negative padding crops.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. All ranks must call
    forward and backward in the same order.

    Args:
        pads: The pixels to add on each side.
        mode: ``constant``, ``reflect``, ``replicate`` or ``circular``.
        value: The value of constant padding.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
    """

    def __init__(
        self, pads: Pads, mode: str = "constant", value: float = 0.0, *, tiling: Tiling
    ) -> None:
        super().__init__()
        left, right, top, bottom = pads
        image_tiles = tiling.partition
        self.output = tiling.resized(
            image_tiles.height + top + bottom, image_tiles.width + left + right
        )
        find_output_tile = self.output.partition.tile
        self._padded = PaddedBox(
            tiling,
            lambda rank: Box(
                _shift_back(find_output_tile(rank).rows, top),
                _shift_back(find_output_tile(rank).cols, left),
            ),
            mode,
            value,
        )
        self.fetches = self._padded.fetches

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        return self._padded.fetch(tile)


class _PaddedWindows:
    """The fetch of the pixels that windows over a padded image read.

    Args:
        window: The window over the padded image, without its own padding.
        pads: The pixels around the image.
        output_sides: Height and width of the output.
        mode: See `SpatialPad2d`.
        value: See `SpatialPad2d`.
        tiling: The tiles of the input.
    """

    def __init__(
        self,
        window: Window2d,
        pads: Pads,
        output_sides: tuple[int, int],
        mode: str,
        value: float,
        tiling: Tiling,
    ) -> None:
        self.output = tiling.resized(*output_sides)
        find_output_tile = self.output.partition.tile

        def find_read_box(rank: int) -> Box:
            box = window.find_inputs(find_output_tile(rank))
            return Box(_shift_back(box.rows, pads[2]), _shift_back(box.cols, pads[0]))

        self.box = PaddedBox(tiling, find_read_box, mode, value)


class SpatialPaddedConv2d(FetchingOperator):
    """`torch.nn.Conv2d` over tiles with any kind of padding, or uneven zeros.

    See `spbench_parallel.spatial.conv.SpatialConv2d`.

    Args:
        conv: The convolution of whole images, with its weights.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
    """

    def __init__(self, conv: nn.Conv2d, *, tiling: Tiling) -> None:
        super().__init__()
        self.weight = conv.weight
        self.bias = conv.bias
        self._stride = conv.stride
        self._dilation = conv.dilation
        self._groups = conv.groups
        pads = get_pads(conv)
        rows, cols = (
            Window(conv.kernel_size[axis], conv.stride[axis], 0, conv.dilation[axis])
            for axis in (0, 1)
        )
        image_tiles = tiling.partition
        output_sides = (
            rows.count_outputs(image_tiles.height + pads[2] + pads[3]),
            cols.count_outputs(image_tiles.width + pads[0] + pads[1]),
        )
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        padded_windows = _PaddedWindows(Window2d(rows, cols), pads, output_sides, mode, 0.0, tiling)
        self.output = padded_windows.output
        self._padded = padded_windows.box
        self.fetches = self._padded.fetches
        self._comm = tiling.comm

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        weight, bias = share_weights(self._comm, self.weight, self.bias)
        window_arguments = self._stride, (0, 0), self._dilation, self._groups
        return convolve(self._padded.fetch(tile), weight, bias, *window_arguments)


def get_pads(conv: nn.Conv2d) -> Pads:
    """Return the pixels that a convolution adds around its image, like torch.

    That includes paddings that are given as words.
    """
    left, right, top, bottom = conv._reversed_padding_repeated_twice
    return left, right, top, bottom


class SpatialCeilMaxPool2d(FetchingOperator):
    """`torch.nn.MaxPool2d` over tiles with ``ceil_mode``: windows may end outside.

    Args:
        kernel_size: Rows and columns.
        stride: The strides of rows and columns.
        padding: Padding around the whole image.
        dilation: Distance between taps in pixels.
        sides: Height and width of the output, as computed by torch.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        *,
        sides: tuple[int, int],
        tiling: Tiling,
    ) -> None:
        super().__init__()
        self._window_arguments = kernel_size, stride, 0, dilation
        padded_window = make_window(kernel_size, stride, padding, dilation)
        pads = padded_window.cols.padding, 0, padded_window.rows.padding, 0
        unpadded_window = make_window(kernel_size, stride, 0, dilation)
        padded_windows = _PaddedWindows(unpadded_window, pads, sides, "constant", -math.inf, tiling)
        self.output = padded_windows.output
        self._padded = padded_windows.box
        self.fetches = self._padded.fetches

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        return functional.max_pool2d(self._padded.fetch(tile), *self._window_arguments)


def _shift_back(interval: Interval, offset: int) -> Interval:
    return interval[0] - offset, interval[1] - offset
