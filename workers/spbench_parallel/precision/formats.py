"""Number formats: of products and messages, of the weights, and of the loss (mixed precision).

In fp64 and fp32 all is of one format. In 16 bits the work is mixed:

- Convolutions multiply 16-bit numbers and give 16-bit numbers. So all maps are of 16 bits, and
  messages between stages and between tiles, forward and backward, have half as many bytes.
- Weights stay in fp32, and are rounded for each convolution: an update is often smaller than what
  16 bits can add to a weight. Their gradients are summed in fp32.
- Batch normalisation has its parameters and statistics in fp32; the fully connected layer is
  computed in fp32, and so are logits and loss.
- fp16 holds nothing below 2^-24: see `spbench_parallel.precision.loss_scale`.

In tf32 all is fp32, but a GPU rounds what it multiplies to 11 bits, 10 of them written down. That
is a setting of the device, made where it is chosen: nothing here needs to know.

A model that only infers keeps the weights of its convolutions in 16 bits: they would be rounded so
anyway. In int8 all is fp32, but for the convolutions: see `int8`.

This is what `torch.autocast` does, except for the logits. It is done here, because torch's own
convolution of 16-bit numbers is 25 times slower than that of fp32 on a CPU that has no instructions
for them, as most have not; and less exact. There they are multiplied as fp32, which holds each
product, and the sum is rounded to 16 bits, as GPUs do it.
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
        int8: Whether convolutions multiply whole numbers of 8 bits, in place of `work`.
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
        """Whether convolutions work in another format than that of the weights."""
        return self.work != self.weights

    @property
    def rounds_maps(self) -> bool:
        """Whether maps have 16 bits: a step is then checked operator by operator."""
        return self.work.itemsize == 2

    @property
    def rounding(self) -> float:
        """The share of itself by which rounding changes a number, as a mean."""
        return self.epsilon / 4

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number that is multiplied."""
        return TF32_EPSILON if self.tf32 else float(torch.finfo(self.work).eps)


TF32_EPSILON: Final = 2.0**-10
"""TF32 has as many bits of a number as fp16, and as large numbers as fp32."""
FP64: Final = Precision("fp64", torch.float64, torch.float64)
FP32: Final = Precision("fp32", torch.float32, torch.float32)
FP16: Final = Precision("fp16", torch.float16, torch.float32, scales_loss=True)
BF16: Final = Precision("bf16", torch.bfloat16, torch.float32)
TF32: Final = Precision("tf32", torch.float32, torch.float32, tf32=True)
INT8: Final = Precision("int8", torch.float32, torch.float32, int8=True)
PRECISIONS: Final = {one.name: one for one in (FP64, FP32, TF32, FP16, BF16, INT8)}
"""The number formats by name."""


class ConvForm(NamedTuple):
    """The form of a convolution: torch's arguments behind the bias."""

    stride: Pair = 1
    padding: Pair = 0
    dilation: Pair = 1
    groups: int = 1


class Products(TorchFunctionMode, ABC):
    """A mode in which all convolutions and fully connected layers of this thread are computed.

    It is a mode so that torch's modules and operators over tiles need not know of it: these call
    `torch.conv2d` for each strip of a tile.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        words = kwargs or {}
        if function is torch.conv2d:
            return self._conv2d(*args, **words)
        if function is functional.linear:
            return self.linear(*args, **words)
        return function(*args, **words)

    def _conv2d(
        self,
        pixels: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *form: Any,
        **named: Any,
    ) -> torch.Tensor:
        return self.conv2d(pixels, weight, bias, ConvForm(*form, **named))

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


class MixedProducts(Products):
    """Products in mixed precision: convolutions in 16 bits, fully connected layers in the weights'.

    So are transposed and other convolutions, and attention as fully connected layers are.

    Args:
        work: The 16-bit format.
        device: The device of the tensors.
    """

    def __init__(self, work: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self._work = work
        self._multiplied = work if multiplies(device, work) else torch.float32

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        words = kwargs or {}
        if function in _OTHER_CONVOLUTIONS:
            given = (self._rounded(one) if _is_tensor(one) else one for one in args)
            named = {
                key: self._rounded(one) if _is_tensor(one) else one for key, one in words.items()
            }
            return function(*given, **named).to(self._work)
        if function is torch.prelu:
            values, weight = args
            return function(values, weight.to(values.dtype))
        if function is functional.multi_head_attention_forward:
            (values, *others) = args
            weights = args[5]
            wide = [one.to(weights.dtype) for one in (values, *others[:2])]
            made, attention = function(*wide, *others[2:], **words)
            return made.to(values.dtype), attention
        return super().__torch_function__(function, types, args, kwargs)

    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Convolve 16-bit numbers; gradients are rounded to 16 bits too."""
        pixels, weight = self._rounded(pixels), self._rounded(weight)
        bias = None if bias is None else self._rounded(bias)
        made = convolve(pixels, weight, bias, *form)
        return made.to(self._work)

    def linear(
        self, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply in the weights' format."""
        return functional.linear(values.to(weight.dtype), weight, bias)

    def _rounded(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._work).to(self._multiplied)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def multiplies(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a device has instructions for products of a 16-bit format."""
    if device.type != "cpu":
        return True
    known = torch.ops.mkldnn
    if dtype == torch.bfloat16:
        return bool(known._is_mkldnn_bf16_supported())
    return bool(known._is_mkldnn_fp16_supported())


def narrow(stage: nn.Module, precision: Precision) -> None:
    """Keep the weights of convolutions in the format in which they are multiplied."""
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            module.to(precision.work)
