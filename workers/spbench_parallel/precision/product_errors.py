"""Errors of a device's fp32 products, each compared separately with float64.

A whole model in float64 does not show whether a GPU multiplies fp32 as fp32 or as TF32. A model in
fp32 hardly shows it: rounding flips ReLUs, so that later values differ as much in any format. A
single product differs only by the rounding of its format.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from spbench_parallel.device.streams import is_gpu
from spbench_parallel.precision.formats import FP32, TF32, ConvForm, Precision, ProductMode
from spbench_parallel.verify.worst_error import WorstError

# Only a corner of some images is compared, of as many rows as columns. The gradients of a
# convolution are then sums of few thousand products, with small rounding errors in any order.
CORNER_SIDE = 64
CORNER_IMAGES = 2
FP32_SLACK = 256.0
"""Tolerance in multiples of the distance from 1 to the next number of fp32.

Sums of thousands of products are off by about ten times that, and Winograd's transforms lose as
much again. TF32 is off by 2000 times that.
"""
TF32_SLACK = 2.0
"""Tolerance in multiples of the same distance of TF32.

Some devices truncate numbers where others round them.
"""

Factors = tuple[torch.Tensor, torch.Tensor]
Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def compares_products(precision: Precision, device: torch.device) -> bool:
    """Return whether products are compared.

    They are in fp32 and tf32 on GPUs, where the two could be confused.
    """
    return is_gpu(device) and precision in (FP32, TF32)


def product_tolerance(precision: Precision) -> float:
    """Return the tolerance of products in fp32 or tf32; see `ProductErrors.worst`."""
    return (TF32_SLACK if precision.tf32 else FP32_SLACK) * precision.epsilon


class ProductErrors(ProductMode):
    """Products of the device, each compared with float64.

    Convolutions and fully connected layers are compared, and their gradients of pixels and of
    weights, too. The output serves as the gradient of the output.

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

        def convolve(pixels: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return torch.conv2d(pixels, weight, None, *form)

        corner = pixels[:CORNER_IMAGES, :, :CORNER_SIDE, :CORNER_SIDE].contiguous()
        self._compare("convolution", convolve, (corner, weight))
        return torch.conv2d(pixels, weight, bias, *form)

    def linear(
        self, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply, and compare."""
        self._compare("product", functional.linear, (values, weight))
        return super().linear(values, weight, bias)

    def _compare(self, operator_name: str, multiply: Multiply, factors: Factors) -> None:
        if not factors[0].numel():
            return
        outputs = _run_passes(multiply, factors)
        references = _run_passes(multiply, (factors[0].double(), factors[1].double()))
        for name, output, reference in zip(
            ("output", "input_grad", "grad"), outputs, references, strict=True
        ):
            reference_squares = float(reference.square().sum())
            error_squares = float((output.double() - reference).square().sum())
            relative_error = (
                (error_squares / reference_squares) ** 0.5 if reference_squares else error_squares
            )
            shape = "x".join(map(str, factors[1].shape))
            self.worst.add(
                relative_error, self._tolerance, f"{name} of a {operator_name} with {shape} weights"
            )


def _run_passes(multiply: Multiply, factors: Factors) -> tuple[torch.Tensor, ...]:
    """Return the product and the gradients of its factors."""
    left, right = (factor.detach().requires_grad_() for factor in factors)
    with torch.enable_grad():
        product = multiply(left, right)
    return product.detach(), *torch.autograd.grad(product, (left, right), product.detach())
