"""The reference of layers over tiles: torch's own layers, in float64, on the image around a tile.

Each rank makes a crop of the image that reaches beyond its tile, or a box of it, by twice as much
as the layers do, and runs the plain layers on it, as one process would on the whole image. Errors
near the crop's edges never come near the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.exchange import view_box

PixelSource = Callable[[Box], torch.Tensor]
"""The values of a box, ``batch x channels x rows x cols``, made without asking another rank."""


@dataclass(frozen=True, slots=True)
class Expected:
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


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference: it computes the expected values of ranks.

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

    def compute_tile(self, tile: Box, outputs: Box) -> Expected:
        """Compute the expected values of the rank that owns these pixels and these outputs."""
        image, crop, result, held = self._around(tile)
        gradient = self.gradients(held).double()
        of_image = torch.autograd.grad(result, image, gradient, retain_graph=True)[0]
        own = torch.zeros_like(gradient)
        view_box(own, held, outputs).copy_(view_box(gradient, held, outputs))
        return Expected(
            [(outputs, view_box(result.detach(), held, outputs))],
            [(tile, view_box(of_image, crop, tile))],
            self._of_parameters(result, own),
        )

    def compute_boxes(self, inputs: Sequence[Box], outputs: Sequence[Box]) -> Expected:
        """Compute boxes of the expected values, with gradients of zero for other outputs."""
        total = [torch.zeros_like(parameter) for parameter in self.layers.parameters()]
        of_outputs = []
        for box in outputs:
            values, of_parameters = self._outputs(box)
            of_outputs.append((box, values))
            total = [sum_ + one for sum_, one in zip(total, of_parameters, strict=True)]
        return Expected(of_outputs, [(box, self._input_gradient(box)) for box in inputs], total)

    def _outputs(self, box: Box) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Compute some outputs, and their contributions to the gradients of the parameters."""
        rows = _read([window.rows for window in self.windows], box.rows, self.owned.height)
        cols = _read([window.cols for window in self.windows], box.cols, self.owned.width)
        _, _, result, held = self._around(Box(rows, cols))
        own = torch.zeros_like(result)
        view_box(own, held, box).copy_(self.gradients(box))
        return view_box(result.detach(), held, box), self._of_parameters(result, own)

    def _input_gradient(self, box: Box) -> torch.Tensor:
        image, crop, result, held = self._around(box)
        of_image = torch.autograd.grad(result, image, self.gradients(held).double())[0]
        return view_box(of_image, crop, box)

    def _around(self, box: Box) -> tuple[torch.Tensor, Box, torch.Tensor, Box]:
        """Run the layers on a crop around some pixels; return both, each with its box."""
        rows, down = _crop([window.rows for window in self.windows], box.rows, self.owned.height)
        cols, right = _crop([window.cols for window in self.windows], box.cols, self.owned.width)
        image = self.pixels(Box(rows, cols)).double().requires_grad_()
        result = self.layers(image)
        held = Box((down, down + result.shape[2]), (right, right + result.shape[3]))
        return image, Box(rows, cols), result, held

    def _of_parameters(self, result: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
        parameters = list(self.layers.parameters())
        return list(torch.autograd.grad(result, parameters, gradient)) if parameters else []


def compute_reach(windows: Sequence[Window]) -> tuple[int, int]:
    """Return the stride of windows in a row, and a bound of how far they read to either side."""
    stride = 1
    reach = 0
    for window in windows:
        reach += (window.span + window.padding) * stride
        stride *= window.stride
    return stride, reach


def _read(windows: Sequence[Window], outputs: Interval, length: int) -> Interval:
    """Return rows or columns of the image among which are all that these outputs read."""
    stride, reach = compute_reach(windows)
    first = outputs[0] * stride - reach
    last = (outputs[1] - 1) * stride + reach
    return max(0, first), min(length, last + 1)


def _crop(windows: Sequence[Window], tile: Interval, length: int) -> tuple[Interval, int]:
    """Return the rows or columns of the crop, and the output that its first one belongs to."""
    stride, reach = compute_reach(windows)
    first = max(0, (tile[0] - 2 * reach) // stride * stride)
    return (first, min(length, tile[1] + 2 * reach)), first // stride
