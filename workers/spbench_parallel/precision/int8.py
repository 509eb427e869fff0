"""Inference with convolutions of whole numbers of 8 bits: static post-training quantisation.

First, in fp32, a batch says which range of values each convolution reads; all ranks agree on it,
so that tiles and replicas all round alike. Then weights become whole numbers from -127 to 127, with
a scale for each filter; inputs of a convolution become whole numbers from 0 to 127, with one scale
and one zero point. Their products are added as whole numbers, exactly, and come out as fp32.
Everything else is fp32: normalisation, sums, pools, the fully connected layer, and all messages.

128 levels and not 256: CPUs without VNNI add each two products in 16 bits, in which two of
255 x 127 do not fit; torch does not say so, its results are just wrong by some percent. Of
127 x 127 they fit, and the results are the same on every CPU. Torch recommends the same for x86
(``reduce_range``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.window import both_axes
from spbench_parallel.device.convolution import widen_lone_column
from spbench_parallel.precision.formats import ConvForm, Products
from spbench_parallel.spatial.conv import make_window

LEVELS = 127
"""The largest whole number, of weights and of inputs."""

Range = tuple[float, float]
Ranges = dict[str, Range]
"""The least and the largest value that each convolution reads, by the name of its weight."""


class RangeRecorder(Products):
    """Products in fp32 that record the range of the values that convolutions read.

    Args:
        stages: The modules that are run.

    Attributes:
        ranges: The ranges so far; zero is always in them, as padding is.
    """

    def __init__(self, stages: Iterable[nn.Module]) -> None:
        super().__init__()
        self.ranges: Ranges = {}
        self._names = names_of(stages)

    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Convolve, and widen the range of this convolution's input."""
        made = torch.conv2d(pixels, weight, bias, *form)
        read = _read(pixels, made, weight, form)
        least, largest = (float(one) for one in read.aminmax())
        name = self._names[weight.data_ptr()]
        known = self.ranges.get(name, (0.0, 0.0))
        self.ranges[name] = min(least, known[0]), max(largest, known[1])
        return made


def agreed(world: MPI.Intracomm, ranges: Ranges) -> Ranges:
    """Return the ranges of all ranks' values. All must call it together."""
    everyones: Ranges = {}
    for some in world.allgather(ranges):
        for name, (least, largest) in some.items():
            known = everyones.get(name, (0.0, 0.0))
            everyones[name] = min(least, known[0]), max(largest, known[1])
    return everyones


@dataclass(frozen=True, slots=True)
class Quantised:
    """A convolution's weight in 8 bits, and how its input is rounded.

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

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        """Return an input as whole numbers; calibration may not have seen its largest values."""
        # What is cut off after a half is added is rounded: in three passes and not five.
        whole = torch.add(torch.tensor(self.zero + 0.5), values, alpha=1.0 / self.scale)
        return whole.clamp_(0, LEVELS).to(torch.uint8)

    @classmethod
    def of(cls, weight: torch.Tensor, read: Range) -> Quantised:
        """Return a weight rounded to whole numbers, with scale and zero point of its input."""
        largest = weight.abs().amax((1, 2, 3))
        scales = torch.where(largest > 0, largest / LEVELS, 1.0)
        whole = (weight / scales[:, None, None, None]).round().to(torch.int8)
        least, most = read
        scale = (most - least) / LEVELS or 1.0
        return cls(whole, scales, scale, round(-least / scale))


class Int8Products(Products):
    """Products in int8, by oneDNN's kernels for the CPU.

    Args:
        stages: The modules that are run.
        ranges: The ranges of the values that their convolutions read.

    Attributes:
        int8: Multiply-adds in 8 bits so far, on this rank.
        others: Multiply-adds in fp32: those of fully connected layers.
    """

    def __init__(self, stages: Iterable[nn.Module], ranges: Mapping[str, Range]) -> None:
        super().__init__()
        self.int8 = self.others = 0
        self._quantised: dict[int, Quantised] = {}
        self._packed: dict[int, torch.Tensor] = {}
        for stage in stages:
            for name, weight in convolutions(stage):
                quantised = Quantised.of(weight.detach(), ranges[name])
                self._quantised[weight.data_ptr()] = quantised

    def conv2d(
        self, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: ConvForm
    ) -> torch.Tensor:
        """Round the pixels, convolve whole numbers, and return fp32."""
        own = self._quantised[weight.data_ptr()]
        how = (*(list(both_axes(pair)) for pair in form[:3]), form.groups)
        scale = own.scale
        zero = own.zero
        rounded, alone = widen_lone_column(own.rounded(pixels), weight, *form[:3])
        made: torch.Tensor = torch.ops.onednn.qconv2d_pointwise(
            rounded,
            scale,
            zero,
            self._packed_for(weight.data_ptr(), how, rounded.shape),
            own.weight_scales,
            torch.zeros(len(own.weight), dtype=torch.int64),
            bias,
            *how,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        made = made[..., :1] if alone else made
        self.int8 += made.numel() * weight[0].numel()
        return made

    def linear(
        self, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply in fp32."""
        self.others += values.shape[0] * weight.numel()
        return super().linear(values, weight, bias)

    def _packed_for(self, key: int, how: tuple[Any, ...], shape: torch.Size) -> torch.Tensor:
        """Return the weight in onednn's order: the best for the first shape, right for all."""
        if key not in self._packed:
            own = self._quantised[key]
            self._packed[key] = torch.ops.onednn.qconv_prepack(
                own.weight, own.weight_scales, own.scale, own.zero, *how, list(shape)
            )
        return self._packed[key]


def convolutions(stage: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return the weights of all convolutions, by name."""
    return [
        (f"{name}.weight", module.weight)
        for name, module in stage.named_modules()
        if isinstance(module, nn.Conv2d)
    ]


def names_of(stages: Iterable[nn.Module]) -> dict[int, str]:
    """Return the names of convolutions' weights, by the address: a view's is the same."""
    return {weight.data_ptr(): name for stage in stages for name, weight in convolutions(stage)}


def _read(
    pixels: torch.Tensor, made: torch.Tensor, weight: torch.Tensor, form: ConvForm
) -> torch.Tensor:
    """Return the pixels that outputs depend on.

    A tile leaves out other pixels than the whole image does: a stride leaves some out between
    windows of one pixel, and some after the last window.
    """
    kernel = weight.shape[2], weight.shape[3]
    window = make_window(kernel, *form[:3])
    parts = []
    for axis, outputs in ((window.rows, made.shape[2]), (window.cols, made.shape[3])):
        last = axis.need((0, outputs))[1]
        parts.append(slice(0, last, axis.stride if axis.kernel == 1 else 1))
    return pixels[:, :, parts[0], parts[1]]
