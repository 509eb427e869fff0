"""Reference of layers over tiles: torch's layers in float64 on crops of the image.

Each rank makes a crop of the image that extends beyond its tile, or a box of the tile, by twice the
reach of the layers. It runs the plain layers on the crop, like one process on the whole image.
Errors near the edges of the crop do not reach the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.exchange import view_box

PixelSource = Callable[[Box], torch.Tensor]
"""Returns the values of a box, ``batch x channels x rows x cols``, without communication."""


@dataclass(frozen=True, slots=True)
class ExpectedValues:
    """The expected values of a rank, in float64, box by box.

    Attributes:
        output: The outputs that it owns.
        input_gradient: The gradient of its tile.
        parameter_gradients: The contributions of its outputs to the gradients of the parameters,
            in the layers' order.
    """

    output: list[tuple[Box, torch.Tensor]]
    input_gradient: list[tuple[Box, torch.Tensor]]
    parameter_gradients: list[torch.Tensor]


class _CropResult(NamedTuple):
    """A crop of the image and the layers' result, each with the box of its pixels."""

    image: torch.Tensor
    image_box: Box
    result: torch.Tensor
    result_box: Box


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference that computes the expected values of ranks.

    Attributes:
        layers: Plain layers with parameters of float64.
        windows: The windows of the layers that have one.
        pixels: The image.
        gradients: The gradient of the output.
        owned: The tiles of the image.
    """

    layers: nn.Module
    windows: Sequence[Window2d]
    pixels: PixelSource
    gradients: PixelSource
    owned: Partition

    def compute_tile(self, tile: Box, outputs: Box) -> ExpectedValues:
        """Compute the expected values of the rank with these pixels and outputs."""
        image, image_box, result, result_box = self._run_around(tile)
        gradient = self.gradients(result_box).double()
        image_gradient = torch.autograd.grad(result, image, gradient, retain_graph=True)[0]
        # Each rank contributes the parameter gradients of only the outputs that it owns.
        owned_gradient = torch.zeros_like(gradient)
        view_box(owned_gradient, result_box, outputs).copy_(view_box(gradient, result_box, outputs))
        return ExpectedValues(
            [(outputs, view_box(result.detach(), result_box, outputs))],
            [(tile, view_box(image_gradient, image_box, tile))],
            self._parameter_gradients(result, owned_gradient),
        )

    def compute_boxes(self, inputs: Sequence[Box], outputs: Sequence[Box]) -> ExpectedValues:
        """Compute boxes of the expected values; other outputs have zero gradients."""
        parameter_gradients = [
            torch.zeros_like(parameter) for parameter in self.layers.parameters()
        ]
        output_values = []
        for box in outputs:
            values, gradients = self._compute_outputs(box)
            output_values.append((box, values))
            pairs = zip(parameter_gradients, gradients, strict=True)
            parameter_gradients = [total + gradient for total, gradient in pairs]
        input_gradients = [(box, self._compute_input_gradient(box)) for box in inputs]
        return ExpectedValues(output_values, input_gradients, parameter_gradients)

    def _compute_outputs(self, box: Box) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Compute outputs and their contributions to the parameter gradients."""
        row_windows = [window.rows for window in self.windows]
        col_windows = [window.cols for window in self.windows]
        rows = _find_read_interval(row_windows, box.rows, self.owned.height)
        cols = _find_read_interval(col_windows, box.cols, self.owned.width)
        crop = self._run_around(Box(rows, cols))
        gradient = torch.zeros_like(crop.result)
        view_box(gradient, crop.result_box, box).copy_(self.gradients(box))
        values = view_box(crop.result.detach(), crop.result_box, box)
        return values, self._parameter_gradients(crop.result, gradient)

    def _compute_input_gradient(self, box: Box) -> torch.Tensor:
        image, image_box, result, result_box = self._run_around(box)
        gradient = torch.autograd.grad(result, image, self.gradients(result_box).double())[0]
        return view_box(gradient, image_box, box)

    def _run_around(self, box: Box) -> _CropResult:
        """Run the layers on a crop of the image around a box."""
        rows, down = _crop([window.rows for window in self.windows], box.rows, self.owned.height)
        cols, right = _crop([window.cols for window in self.windows], box.cols, self.owned.width)
        image = self.pixels(Box(rows, cols)).double().requires_grad_()
        result = self.layers(image)
        result_box = Box((down, down + result.shape[2]), (right, right + result.shape[3]))
        return _CropResult(image, Box(rows, cols), result, result_box)

    def _parameter_gradients(
        self, result: torch.Tensor, gradient: torch.Tensor
    ) -> list[torch.Tensor]:
        parameters = list(self.layers.parameters())
        return list(torch.autograd.grad(result, parameters, gradient)) if parameters else []


def compute_reach(windows: Sequence[Window]) -> tuple[int, int]:
    """Return the stride of successive windows, and a bound of their reach per side."""
    stride = 1
    reach = 0
    for window in windows:
        reach += (window.span + window.padding) * stride
        stride *= window.stride
    return stride, reach


def _find_read_interval(windows: Sequence[Window], outputs: Interval, length: int) -> Interval:
    """Return an interval of rows or columns that covers all reads of these outputs."""
    stride, reach = compute_reach(windows)
    first = outputs[0] * stride - reach
    last = (outputs[1] - 1) * stride + reach
    return max(0, first), min(length, last + 1)


def _crop(windows: Sequence[Window], tile: Interval, length: int) -> tuple[Interval, int]:
    """Return the rows or columns of the crop, and the output of the first one."""
    stride, reach = compute_reach(windows)
    first = max(0, (tile[0] - 2 * reach) // stride * stride)
    return (first, min(length, tile[1] + 2 * reach)), first // stride
