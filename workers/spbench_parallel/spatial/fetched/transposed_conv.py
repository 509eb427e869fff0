"""Transposed convolution over tiles."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.spatial.fetched.box import FetchedBox, FetchingOperator
from spbench_parallel.spatial.gradients import share_weights
from spbench_parallel.spatial.tiling import Tiling


class SpatialConvTranspose2d(FetchingOperator):
    """`torch.nn.ConvTranspose2d` of an image in tiles on different ranks.

    Input ``i`` adds to the outputs ``i * stride - padding + dilation * tap``. A rank fetches the
    inputs that contribute to its outputs, and drops their contributions to other outputs. The
    gradients of weight and bias are summed over the tiles. All ranks must call forward and backward
    in the same order.

    Args:
        conv: The transposed convolution of whole images, with its weights.
        sides: Height and width of the output.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
    """

    def __init__(self, conv: nn.ConvTranspose2d, sides: tuple[int, int], *, tiling: Tiling) -> None:
        super().__init__()
        self.weight = conv.weight
        self.bias = conv.bias
        self._stride = conv.stride
        self._dilation = conv.dilation
        self._groups = conv.groups
        self.output = tiling.resized(*sides)
        self._comm = tiling.comm
        axes = [
            _Axis(
                conv.kernel_size[axis],
                conv.stride[axis],
                int(conv.padding[axis]),
                conv.dilation[axis],
            )
            for axis in (0, 1)
        ]
        image = tiling.partition.image
        find_output_tile = self.output.partition.tile

        def find_read_box(rank: int) -> Box:
            tile = find_output_tile(rank)
            if tile.empty:
                return Box((0, 0), (0, 0))
            return Box(
                axes[0].find_inputs(tile.rows, image.height),
                axes[1].find_inputs(tile.cols, image.width),
            )

        self._fetch = FetchedBox(tiling, find_read_box)
        self.fetches = (self._fetch,)
        box = self._fetch.box
        tile = self.output.tile
        self._output_ranges = [
            (interval[0] - axis.find_first_output(inputs[0]), interval[1] - interval[0])
            for axis, interval, inputs in zip(
                axes, (tile.rows, tile.cols), (box.rows, box.cols), strict=True
            )
        ]

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        weight, bias = share_weights(self._comm, self.weight, self.bias)
        outputs = functional.conv_transpose2d(
            self._fetch.fetch(tile),
            weight,
            None,
            self._stride,
            groups=self._groups,
            dilation=self._dilation,
        )
        for axis, (first, count) in enumerate(self._output_ranges, start=2):
            outputs = _take_outputs(outputs, axis, first, count)
        return outputs if bias is None else outputs + bias.to(outputs.dtype)[:, None, None]


class _Axis:
    """A transposed convolution along an axis."""

    def __init__(self, kernel: int, stride: int, padding: int, dilation: int) -> None:
        self._span = dilation * (kernel - 1)
        self._stride = stride
        self._padding = padding

    def find_first_output(self, input_index: int) -> int:
        """Return the first output that an input contributes to."""
        return input_index * self._stride - self._padding

    def find_inputs(self, outputs: Interval, input_length: int) -> Interval:
        """Return the inputs that contribute to outputs.

        There is at least one; its contribution may be dropped later.
        """
        first_input = -(-(outputs[0] + self._padding - self._span) // self._stride)
        last_input = (outputs[1] - 1 + self._padding) // self._stride
        first_input = min(max(first_input, 0), input_length - 1)
        return first_input, max(min(last_input + 1, input_length), first_input + 1)


def _take_outputs(
    values: torch.Tensor, axis: int, first_output: int, output_count: int
) -> torch.Tensor:
    """Return some outputs along an axis; those without any input are 0."""
    length = values.shape[axis]
    start = min(max(first_output, 0), length)
    end = max(min(first_output + output_count, length), start)
    inside = values.narrow(axis, start, end - start)
    before = start - first_output
    after = first_output + output_count - end
    if not before and not after:
        return inside
    pads = (0, 0, before, after) if axis == 2 else (before, after, 0, 0)
    return functional.pad(inside, pads)
