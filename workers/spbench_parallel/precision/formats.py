"""Number formats of products, messages, weights and loss (mixed precision).

In fp64 and fp32 everything has one format. In 16 bits the precision is mixed:

- Convolutions multiply 16-bit numbers and return 16-bit numbers. So all maps have 16 bits, and
  messages between stages and between tiles, forward and backward, have half as many bytes.
- Weights stay in fp32, and are rounded for each convolution: an update is often smaller than the
  smallest change of a weight in 16 bits. Their gradients are summed in fp32.
- Batch normalisation has its parameters and statistics in fp32. The fully connected layer is
  computed in fp32, and so are logits and loss.
- fp16 has no number below 2^-24: see `spbench_parallel.precision.loss_scale`.

In tf32 everything is fp32, but a GPU rounds factors to 11 bits, 10 of them stored. That is a
setting of the device, made when the device is chosen, and not visible here.

A model that only infers keeps the weights of its convolutions in 16 bits, since they would be
rounded to 16 bits anyway. In int8 everything is fp32 except convolutions: see `int8`.

`torch.autocast` does the same, except for the logits. It is implemented here for CPUs without
instructions for 16-bit numbers, which are most CPUs. There torch's 16-bit convolution is 25 times
slower than that of fp32, and less exact. Here 16-bit numbers are multiplied as fp32, which
represents each product exactly, and the sum is rounded to 16 bits, like on GPUs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from spbench_core.layout.window import Pair
from spbench_parallel.device.convolution import convolve


@dataclass(frozen=True, slots=True)
class Precision:
    """A number format.

    Attributes:
        name: Its name.
        work: The format of the products of convolutions, of maps and of all messages of them.
        weights: The format of weights in training, and of their gradients.
        scales_loss: Whether gradients would be too small for `work`, so that the loss is scaled.
        int8: Whether convolutions multiply 8-bit whole numbers, instead of `work`.
        tf32: Whether a GPU multiplies fp32 as TF32.
    """

    name: str
    work: torch.dtype
    weights: torch.dtype
    scales_loss: bool = False
    int8: bool = False
    tf32: bool = False

    @property
    def mixed(self) -> bool:
        """Whether convolutions use another format than that of the weights."""
        return self.work != self.weights

    @property
    def rounds_maps(self) -> bool:
        """Whether maps have 16 bits: a step is then checked operator by operator."""
        return self.work.itemsize == 2

    @property
    def rounding(self) -> float:
        """The mean relative change of a number by rounding."""
        return self.epsilon / 4

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number among factors of products."""
        return TF32_EPSILON if self.tf32 else float(torch.finfo(self.work).eps)


TF32_EPSILON: Final = 2.0**-10
"""TF32 has as many significant bits as fp16, and the range of fp32."""
FP64: Final = Precision("fp64", torch.float64, torch.float64)
FP32: Final = Precision("fp32", torch.float32, torch.float32)
FP16: Final = Precision("fp16", torch.float16, torch.float32, scales_loss=True)
BF16: Final = Precision("bf16", torch.bfloat16, torch.float32)
TF32: Final = Precision("tf32", torch.float32, torch.float32, tf32=True)
INT8: Final = Precision("int8", torch.float32, torch.float32, int8=True)
PRECISIONS: Final = {
    precision.name: precision for precision in (FP64, FP32, TF32, FP16, BF16, INT8)
}
"""The number formats by name."""


class ConvForm(NamedTuple):
    """The form of a convolution: the arguments of `torch.conv2d` after the bias."""

    stride: Pair = 1
    padding: Pair = 0
    dilation: Pair = 1
    groups: int = 1


class ProductMode(TorchFunctionMode, ABC):
    """A mode that computes all convolutions and fully connected layers of a thread.

    As a mode it works unchanged for torch's modules and for tiled operators, which call
    `torch.conv2d` for each strip of a tile.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.conv2d:
            return self._conv2d(*args, **kwargs)
        if function is functional.linear:
            return self.linear(*args, **kwargs)
        return function(*args, **kwargs)

    def _conv2d(
        self,
        pixels: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        return self.conv2d(pixels, weight, bias, ConvForm(*args, **kwargs))

    @abstractmethod
    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Compute a convolution."""

    def linear(
        self, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Compute a fully connected layer, with torch's arguments."""
        return functional.linear(values, weight, bias)


_OTHER_CONVOLUTIONS = frozenset(
    (
        *(torch.conv1d, torch.conv3d),
        *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    )
)


class MixedProducts(ProductMode):
    """Products in mixed precision.

    Convolutions of all kinds are in 16 bits. Fully connected layers and attention are in the format
    of the weights.

    Args:
        work_dtype: The 16-bit format.
        device: The device of the tensors.
    """

    def __init__(self, work_dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self._work_dtype = work_dtype
        self._product_dtype = work_dtype if has_fast_products(device, work_dtype) else torch.float32

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function in _OTHER_CONVOLUTIONS:
            rounded_args = map(self._round, args)
            rounded_kwargs = {name: self._round(argument) for name, argument in kwargs.items()}
            return function(*rounded_args, **rounded_kwargs).to(self._work_dtype)
        if function is torch.prelu:
            values, weight = args
            return function(values, weight.to(values.dtype))
        if function is functional.multi_head_attention_forward:
            query, key, value, *other_args = args
            weights_dtype = args[5].dtype
            wide_inputs = [tensor.to(weights_dtype) for tensor in (query, key, value)]
            output, attention = function(*wide_inputs, *other_args, **kwargs)
            return output.to(query.dtype), attention
        return super().__torch_function__(function, types, args, kwargs)

    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Convolve 16-bit numbers; gradients are rounded to 16 bits, too."""
        output = convolve(
            self._round(pixels),
            self._round(weight),
            None if bias is None else self._round(bias),
            *form,
        )
        return output.to(self._work_dtype)

    def linear(
        self, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply in the weights' format."""
        return functional.linear(values.to(weight.dtype), weight, bias)

    def _round(self, argument: Any) -> Any:
        """Return a tensor rounded to 16 bits in the format of products; others unchanged."""
        if not isinstance(argument, torch.Tensor):
            return argument
        return argument.to(self._work_dtype).to(self._product_dtype)


def has_fast_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a device has instructions for products of a 16-bit format."""
    if device.type != "cpu":
        return True
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def narrow_weights(stage: nn.Module, precision: Precision) -> None:
    """Convert the weights of convolutions to the format in which they are multiplied."""
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            module.to(precision.work)
