"""Inference with 8-bit convolutions: static post-training quantisation.

First, a batch in fp32 determines the range of values that each convolution reads. All ranks merge
their ranges, so that tiles and replicas round alike. Then weights become whole numbers from -127 to
127, with a scale for each filter. Inputs of a convolution become whole numbers from 0 to 127, with
one scale and one zero point. Their products are summed exactly as whole numbers, and converted to
fp32. Everything else is fp32: normalisation, sums, pools, the fully connected layer, all messages.

There are 128 levels and not 256: CPUs without VNNI add pairs of products in 16 bits, which overflow
with two of 255 x 127. Torch does not report it, and the results are wrong by some percent. Two of
127 x 127 fit, and the results are the same on every CPU. Torch recommends the same for x86
(``reduce_range``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.window import expand_pair
from spbench_parallel.device.convolution import widen_lone_column
from spbench_parallel.precision.formats import ConvForm, ProductMode
from spbench_parallel.spatial.conv import make_window

LEVELS = 127
"""The largest whole number of weights and of inputs."""

Range = tuple[float, float]
Ranges = dict[str, Range]
"""The smallest and the largest value that each convolution reads, by the name of its weight."""


class RangeRecorder(ProductMode):
    """Products in fp32 that record the range of the values that convolutions read.

    Args:
        stages: The modules that are run.

    Attributes:
        ranges: The ranges so far. Zero is always included, since padding is zero.
    """

    def __init__(self, stages: Iterable[nn.Module]) -> None:
        super().__init__()
        self.ranges: Ranges = {}
        self._name_by_address = weight_names(stages)

    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Convolve, and widen the range of this convolution's input."""
        output = torch.conv2d(pixels, weight, bias, *form)
        used_pixels = _select_used_pixels(pixels, output, weight, form)
        smallest, largest = (float(extreme) for extreme in used_pixels.aminmax())
        _widen_range(self.ranges, self._name_by_address[weight.data_ptr()], (smallest, largest))
        return output


def merge_ranges(world: MPI.Intracomm, ranges: Ranges) -> Ranges:
    """Return the ranges over all ranks. All ranks must call it together."""
    merged: Ranges = {}
    for rank_ranges in world.allgather(ranges):
        for name, limits in rank_ranges.items():
            _widen_range(merged, name, limits)
    return merged


def _widen_range(ranges: Ranges, name: str, new_range: Range) -> None:
    smallest, largest = ranges.get(name, (0.0, 0.0))
    ranges[name] = min(new_range[0], smallest), max(new_range[1], largest)


@dataclass(frozen=True, slots=True)
class QuantisedWeight:
    """A convolution's weight in 8 bits, with the scale and zero point of its input.

    Attributes:
        weight: Whole numbers, ``filters x channels x rows x cols``.
        weight_scales: By filter, the value of 1.
        scale: The value of 1 in the input.
        zero: The zero point: the whole number of 0.0 in the input.
    """

    weight: torch.Tensor
    weight_scales: torch.Tensor
    scale: float
    zero: int

    def round_input(self, values: torch.Tensor) -> torch.Tensor:
        """Return an input as whole numbers, clamped to the range of the calibration."""
        # Truncation after adding one half rounds. That takes three passes over memory and not five.
        shifted = torch.add(torch.tensor(self.zero + 0.5), values, alpha=1.0 / self.scale)
        return shifted.clamp_(0, LEVELS).to(torch.uint8)

    @classmethod
    def quantise(cls, weight: torch.Tensor, input_range: Range) -> QuantisedWeight:
        """Return a weight in 8 bits, with scale and zero point of its input."""
        largest_by_filter = weight.abs().amax((1, 2, 3))
        weight_scales = torch.where(largest_by_filter > 0, largest_by_filter / LEVELS, 1.0)
        rounded_weight = (weight / weight_scales[:, None, None, None]).round().to(torch.int8)
        smallest_input, largest_input = input_range
        input_scale = (largest_input - smallest_input) / LEVELS or 1.0
        return cls(rounded_weight, weight_scales, input_scale, round(-smallest_input / input_scale))


class Int8Products(ProductMode):
    """Products in int8, by oneDNN's kernels for the CPU.

    Args:
        stages: The modules that are run.
        ranges: The ranges of the values that their convolutions read.

    Attributes:
        int8_multiply_adds: Multiply-adds in 8 bits so far, on this rank.
        fp32_multiply_adds: Multiply-adds in fp32: those of fully connected layers.
    """

    def __init__(self, stages: Iterable[nn.Module], ranges: Mapping[str, Range]) -> None:
        super().__init__()
        self.int8_multiply_adds = 0
        self.fp32_multiply_adds = 0
        self._quantised_by_address: dict[int, QuantisedWeight] = {}
        self._packed_by_address: dict[int, torch.Tensor] = {}
        for stage in stages:
            for name, weight in convolutions(stage):
                quantised = QuantisedWeight.quantise(weight.detach(), ranges[name])
                self._quantised_by_address[weight.data_ptr()] = quantised

    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Round the pixels, convolve whole numbers, and return fp32."""
        quantised = self._quantised_by_address[weight.data_ptr()]
        form_args = (*(list(expand_pair(pair)) for pair in form[:3]), form.groups)
        rounded, is_widened = widen_lone_column(quantised.round_input(pixels), weight, *form[:3])
        output: torch.Tensor = torch.ops.onednn.qconv2d_pointwise(
            rounded,
            quantised.scale,
            quantised.zero,
            self._pack_weight(weight.data_ptr(), form_args, rounded.shape),
            quantised.weight_scales,
            torch.zeros(len(quantised.weight), dtype=torch.int64),
            bias,
            *form_args,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        output = output[..., :1] if is_widened else output
        self.int8_multiply_adds += output.numel() * weight[0].numel()
        return output

    def linear(
        self, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply in fp32."""
        self.fp32_multiply_adds += values.shape[0] * weight.numel()
        return super().linear(values, weight, bias)

    def _pack_weight(
        self, address: int, form_args: tuple[Any, ...], shape: torch.Size
    ) -> torch.Tensor:
        """Return the weight in oneDNN's layout.

        It is the fastest for the first shape, and correct for all.
        """
        if address not in self._packed_by_address:
            quantised = self._quantised_by_address[address]
            self._packed_by_address[address] = torch.ops.onednn.qconv_prepack(
                quantised.weight,
                quantised.weight_scales,
                quantised.scale,
                quantised.zero,
                *form_args,
                list(shape),
            )
        return self._packed_by_address[address]


def convolutions(stage: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return the weights of all convolutions, by name."""
    return [
        (f"{name}.weight", module.weight)
        for name, module in stage.named_modules()
        if isinstance(module, nn.Conv2d)
    ]


def weight_names(stages: Iterable[nn.Module]) -> dict[int, str]:
    """Return the names of convolutions' weights by address, which a view shares."""
    return {weight.data_ptr(): name for stage in stages for name, weight in convolutions(stage)}


def _select_used_pixels(
    pixels: torch.Tensor, output: torch.Tensor, weight: torch.Tensor, form: ConvForm
) -> torch.Tensor:
    """Return the pixels that outputs depend on.

    A tile omits other pixels than the whole image does: a stride omits some between windows of one
    pixel, and some after the last window.
    """
    kernel = weight.shape[2], weight.shape[3]
    window = make_window(kernel, *form[:3])
    slices = []
    for axis, outputs in ((window.rows, output.shape[2]), (window.cols, output.shape[3])):
        end_pixel = axis.find_inputs((0, outputs))[1]
        slices.append(slice(0, end_pixel, axis.stride if axis.kernel == 1 else 1))
    return pixels[:, :, slices[0], slices[1]]
