"""Operators with a window in plain torch: convolutions and pools without padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from spbench_core.layout.window import expand_pair
from spbench_parallel.full_size.regions import WindowAxis
from spbench_parallel.models.modules import SpatialShiftedConv2d
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d, TiledPool

Compute = Callable[..., torch.Tensor]
"""An operator on all pixels that it reads, without padding: pixels, and parameters if any."""
# Bytes of the windows that a convolution in float64 writes to memory at once.
_BAND_BYTES = 1 << 25


@dataclass(frozen=True, slots=True)
class WindowOperator:
    """An operator with a window, in plain torch.

    Attributes:
        axes: Its windows along rows and columns.
        compute: The operator.
        sum_windows: The sum over each window, of an image with one channel.
        weight_norm: The norm of its weights; 1 without weights.
        terms: The terms of an output's sum.
        gradient_terms: The terms of an input gradient's sum.
        fill: The value of pixels outside the image.
    """

    axes: tuple[WindowAxis, WindowAxis]
    compute: Compute
    sum_windows: Compute
    weight_norm: float
    terms: float
    gradient_terms: float
    fill: float = 0.0


class ForwardPass(NamedTuple):
    """The reference of an image's outputs, with the graph for its gradients.

    Attributes:
        parameters: The operator's parameters in float64.
        output: The operator of the pixels.
        pixel_squares: The squared length of each pixel, ``1 x 1 x rows x cols``.
        window_squares: The sum of squares over each window. With the norm of the weights, it bounds
            the magnitude of an output's terms by the inequality of Cauchy and Schwarz.
    """

    parameters: list[torch.Tensor]
    output: torch.Tensor
    pixel_squares: torch.Tensor
    window_squares: torch.Tensor


def compute_forward(
    window: WindowOperator,
    pixels: torch.Tensor,
    masks: Sequence[torch.Tensor],
    parameters: list[torch.Tensor],
    *,
    learns: bool,
) -> ForwardPass:
    """Compute an image's outputs in float64.

    Args:
        window: The operator.
        pixels: The pixels that the outputs read, ``1 x channels x rows x cols``.
        masks: In a mean, the mask of the pixels inside the image.
        parameters: The operator's parameters.
        learns: Whether gradients of pixels will be computed.
    """
    for parameter in parameters:
        parameter.requires_grad_()
    pixels.requires_grad_(learns)
    with torch.enable_grad():
        output = window.compute(pixels, *masks, *parameters)
        pixel_squares = pixels.detach().nan_to_num(0.0, 0.0, 0.0).square().sum(1, keepdim=True)
        pixel_squares.requires_grad_(learns)
        window_squares = window.sum_windows(pixel_squares)
    return ForwardPass(parameters, output, pixel_squares, window_squares)


@dataclass(slots=True)
class ParameterSums:
    """Gradients of the parameters summed over images, and the size of their terms.

    Attributes:
        gradients: The sums, one per parameter, in float64 on the host.
        numbers: The sums of squares of pixels by window and of gradients, and the number of
            outputs.
    """

    gradients: list[torch.Tensor]
    numbers: torch.Tensor

    @classmethod
    def zeros(cls, parameters: dict[str, torch.Tensor]) -> ParameterSums:
        """Return sums of 0 for these parameters."""
        zeros = [
            torch.zeros(parameter.shape, dtype=torch.float64) for parameter in parameters.values()
        ]
        return cls(zeros, torch.zeros(3, dtype=torch.float64))

    def add(
        self,
        gradients: tuple[torch.Tensor, ...],
        window_squares: float,
        gradient_squares: float,
        output_count: int,
    ) -> None:
        for total, gradient in zip(self.gradients, gradients, strict=True):
            total.add_(gradient.cpu())
        self.numbers += torch.tensor(
            [window_squares, gradient_squares, output_count], dtype=torch.float64
        )


def create_window_operator(
    module: SpatialConv2d | TiledPool, work_dtype: torch.dtype
) -> WindowOperator:
    """Return a tiled convolution or pool as an operator in plain torch.

    Args:
        module: The tiled operator.
        work_dtype: The number format of its products.
    """
    if isinstance(module, SpatialConv2d):
        return _create_convolution(module, work_dtype)
    assert isinstance(module, SpatialMaxPool2d | SpatialAvgPool2d), "there are no other pools"
    kernel_rows, kernel_cols = expand_pair(module.kernel_size)
    strides = expand_pair(module.stride)
    paddings = expand_pair(module.padding)
    dilations = expand_pair(module.dilation) if isinstance(module, SpatialMaxPool2d) else (1, 1)
    axes = tuple(map(WindowAxis, (kernel_rows, kernel_cols), strides, paddings, dilations))

    def sum_windows(squares: torch.Tensor) -> torch.Tensor:
        ones = squares.new_ones((1, 1, kernel_rows, kernel_cols))
        return functional.conv2d(squares, ones, None, strides, 0, dilations)

    def compute_max(pixels: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(pixels, (kernel_rows, kernel_cols), strides, 0, dilations)

    def compute_mean(pixels: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        share_inside = functional.avg_pool2d(inside, (kernel_rows, kernel_cols), strides)
        return functional.avg_pool2d(pixels, (kernel_rows, kernel_cols), strides) / share_inside

    terms = kernel_rows * kernel_cols
    if isinstance(module, SpatialMaxPool2d):
        return WindowOperator(
            (axes[0], axes[1]), compute_max, sum_windows, 1.0, 1.0, terms, -math.inf
        )
    return WindowOperator((axes[0], axes[1]), compute_mean, sum_windows, 1.0, terms, terms)


def _create_convolution(module: SpatialConv2d, work_dtype: torch.dtype) -> WindowOperator:
    weight = module.weight.detach().to(work_dtype).double()
    dilation = expand_pair(module.dilation)
    groups = module.groups
    # A shifted convolution reads the last pixel of windows of 2x2.
    shifted = isinstance(module, SpatialShiftedConv2d)
    window = module.window
    kernel = (2, 2) if shifted else expand_pair(module.kernel_size)
    strides = (1, 1) if shifted else expand_pair(module.stride)
    axes = tuple(
        map(
            WindowAxis,
            kernel,
            (window.rows.stride, window.cols.stride),
            (window.rows.padding, window.cols.padding),
            dilation,
        )
    )
    ones = weight.new_ones((1, 1, *module.kernel_size))

    def select_read(pixels: torch.Tensor) -> torch.Tensor:
        return pixels[:, :, 1::2, 1::2] if shifted else pixels

    def compute(
        pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return _convolve_in_bands(select_read(pixels), weight, bias, strides, dilation, groups)

    def sum_windows(squares: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(select_read(squares), ones, None, strides, 0, dilation)

    taps = ones.numel()
    return WindowOperator(
        (axes[0], axes[1]),
        compute,
        sum_windows,
        float(weight.norm()),
        taps * module.in_channels / groups,
        taps * module.out_channels / groups,
    )


def _convolve_in_bands(
    pixels: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> torch.Tensor:
    """Return a convolution without padding, computed by bands of rows.

    In float64 torch writes the window of each output to memory, which takes many times the memory
    of the pixels. A band limits it to about `_BAND_BYTES` bytes.
    """
    kernel_span = dilation[0] * (weight.shape[2] - 1) + 1
    output_rows = (pixels.shape[2] - kernel_span) // stride[0] + 1
    row_bytes = pixels.shape[1] * weight[0, 0].numel() * pixels.shape[3] * pixels.element_size()
    outputs_per_band = max(1, _BAND_BYTES // row_bytes)
    output_bands = []
    for first in range(0, output_rows, outputs_per_band):
        last = min(first + outputs_per_band, output_rows) - 1
        input_rows = pixels[:, :, first * stride[0] : last * stride[0] + kernel_span]
        output_bands.append(
            functional.conv2d(input_rows, weight, bias, stride, 0, dilation, groups)
        )
    return output_bands[0] if len(output_bands) == 1 else torch.cat(output_bands, 2)
