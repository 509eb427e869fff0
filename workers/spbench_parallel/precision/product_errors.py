"""Errors of a device's fp32 products, each compared by itself with float64.

A whole model in float64 does not show whether a GPU multiplies fp32 as fp32 or as TF32, and in fp32
it shows it badly: rounding flips ReLUs, and later values are off by as much in any format. A
product by itself is off only by the rounding of its format.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from spbench_parallel.device.streams import is_gpu
from spbench_parallel.precision.formats import FP32, TF32, ConvForm, Precision, Products
from spbench_parallel.verify.worst_error import WorstError

SIDE = 64
IMAGES = 2
"""The part of a convolution that is compared: a corner of some images. Its gradients then are
sums of few thousand products, whose own rounding stays small in whatever order they are added."""
FP32_SLACK = 256.0
"""Times the distance from 1 to the next number. Sums of thousands of products round to some ten
times that, and Winograd's transforms lose as much again; TF32 is off by 2000 times."""
TF32_SLACK = 2.0
"""Times TF32's own distance, as some devices cut numbers off where others round them."""

Factors = tuple[torch.Tensor, torch.Tensor]
Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def compares(precision: Precision, device: torch.device) -> bool:
    """Return whether products are compared: in fp32 and tf32 on GPUs, which could mix them up."""
    return is_gpu(device) and precision in (FP32, TF32)


def tolerance_of(precision: Precision) -> float:
    """Return how far products may be from float64, in fp32 or tf32; see `ProductErrors.worst`."""
    return (TF32_SLACK if precision.tf32 else FP32_SLACK) * precision.epsilon


class ProductErrors(Products):
    """Products as the device makes them, each compared with float64.

    Convolutions and fully connected layers are compared, and their gradients of pixels and of
    weights too; the output itself stands in for the gradient of the output.

    Args:
        tolerance: The largest allowed error.

    Attributes:
        worst: The largest error so far, of any output or gradient: the root of the sum of squared
            differences over that of squared values.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        super().__init__()
        self._tolerance = tolerance
        self.worst = WorstError.with_tolerance(tolerance)

    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Convolve, and compare a corner."""

        def convolve(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return torch.conv2d(one, other, None, *form)

        corner = pixels[:IMAGES, :, :SIDE, :SIDE].contiguous()
        self._compare("convolution", convolve, (corner, weight))
        return torch.conv2d(pixels, weight, bias, *form)

    def linear(
        self, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply, and compare."""
        self._compare("product", functional.linear, (values, weight))
        return super().linear(values, weight, bias)

    def _compare(self, kind: str, multiply: Multiply, factors: Factors) -> None:
        if not factors[0].numel():
            return
        found = _passes(multiply, factors)
        wanted = _passes(multiply, (factors[0].double(), factors[1].double()))
        for name, one, other in zip(("output", "input_grad", "grad"), found, wanted, strict=True):
            size = float(other.square().sum())
            error = float((one.double() - other).square().sum())
            share = (error / size) ** 0.5 if size else error
            shape = "x".join(map(str, factors[1].shape))
            self.worst.add(share, self._tolerance, f"{name} of a {kind} with {shape} weights")


def _passes(multiply: Multiply, factors: Factors) -> tuple[torch.Tensor, ...]:
    """Return the product and the gradients of its factors."""
    one, other = (factor.detach().requires_grad_() for factor in factors)
    with torch.enable_grad():
        made = multiply(one, other)
    return made.detach(), *torch.autograd.grad(made, (one, other), made.detach())
