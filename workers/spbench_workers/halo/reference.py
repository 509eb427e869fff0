"""What layers over tiles must give: torch's own layers, in float64, on the image around a tile.

Each rank makes a crop of the image that reaches beyond its tile by twice as much as the layers do,
and runs the plain layers on it, as one process would on the whole image. What is wrong near the
crop's edges never comes near the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from spbench_workers.layout import Box, Interval
from spbench_workers.spatial.exchange import view
from spbench_workers.spatial.partition import Partition
from spbench_workers.window import Window, Window2d

Values = Callable[[Box], torch.Tensor]
"""The values of a box, ``batch x channels x rows x cols``, made without asking another rank."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a rank must get, in float64.

    Attributes:
        output: The outputs that it owns.
        input_gradient: The gradient of its tile.
        parameter_gradients: What its outputs contribute to the gradients of the parameters, in
            the layers' order.
    """

    output: torch.Tensor
    input_gradient: torch.Tensor
    parameter_gradients: list[torch.Tensor]


def expected(
    layers: nn.Module,
    windows: Sequence[Window2d],
    pixels: Values,
    gradients: Values,
    owned: Partition,
    produced: Partition,
    rank: int,
) -> Expected:
    """Compute what a rank must get.

    Args:
        layers: Plain layers with parameters of float64.
        windows: Those of the layers that have one.
        pixels: The image.
        gradients: The gradient of the output.
        owned: The tiles of the image.
        produced: The tiles of the output.
        rank: The rank.
    """
    tile, outputs = owned.tile(rank), produced.tile(rank)
    rows, down = _crop([window.rows for window in windows], tile.rows, owned.height)
    cols, right = _crop([window.cols for window in windows], tile.cols, owned.width)
    crop = Box(rows, cols)
    image = pixels(crop).double().requires_grad_()
    result = layers(image)
    held = Box((down, down + result.shape[2]), (right, right + result.shape[3]))
    gradient = gradients(held).double()
    of_image = torch.autograd.grad(result, image, gradient, retain_graph=True)[0]
    own = torch.zeros_like(gradient)
    view(own, held, outputs).copy_(view(gradient, held, outputs))
    parameters = list(layers.parameters())
    of_parameters = list(torch.autograd.grad(result, parameters, own)) if parameters else []
    return Expected(view(result.detach(), held, outputs), view(of_image, crop, tile), of_parameters)


def _crop(windows: Sequence[Window], tile: Interval, length: int) -> tuple[Interval, int]:
    """Return the rows or columns of the crop, and the output that its first one belongs to."""
    stride, reach = 1, 0
    for window in windows:
        reach += (window.span + window.padding) * stride
        stride *= window.stride
    first = max(0, (tile[0] - 2 * reach) // stride * stride)
    return (first, min(length, tile[1] + 2 * reach)), first // stride
