"""References of operators with a window: plain torch on the region that a rank's tile needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_core.layout.tiles import Box
from spbench_core.layout.window import both_axes
from spbench_parallel.full_size.bound import (
    STATISTICS_SLACK,
    OperatorErrors,
    Rounding,
    ScaleError,
    length,
    worst_pixel,
)
from spbench_parallel.full_size.regions import Regions, WindowAxis, cut, fetch
from spbench_parallel.full_size.sums import ReferenceMoments, from_last_to_first
from spbench_parallel.full_size.winograd import REACH, amplify, fits_winograd, may_use_winograd
from spbench_parallel.models.shifted_conv import SpatialShiftedConv2d
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d, TiledPool

STRIPS = 4.0
"""Parts of a tile's convolution, with borders that come later, whose gradients meet in a pixel."""
Plain = Callable[..., torch.Tensor]
"""An operator on all pixels that it reads, without padding: pixels, and parameters if any."""


@dataclass(slots=True)
class Call:
    """One call of an operator: what it got and gave, and the gradients of both.

    Attributes:
        pixels: Its input, this rank's tile.
        found: Its output.
        output_gradient: The gradient of its output; None in inference.
        input_gradient: The gradient of its input through it alone; None likewise.
        parameter_gradients: Those of its parameters, summed over the tiles, by name.
        moments: Of a batch normalisation, the moments of its input, once they are known.
    """

    pixels: torch.Tensor
    found: torch.Tensor
    output_gradient: torch.Tensor | None = None
    input_gradient: torch.Tensor | None = None
    parameter_gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    moments: ReferenceMoments | None = None

    def release(self) -> None:
        """Let go of all tensors: hooks keep the call until the whole step has ended."""
        self.pixels = self.found = torch.empty(0)
        self.output_gradient = self.input_gradient = None
        self.parameter_gradients = {}


_BAND = 1 << 25
"""Bytes of windows that are written out at once."""


@dataclass(frozen=True, slots=True)
class _Window:
    """An operator with a window as plain torch has it.

    Attributes:
        axes: Its windows along rows and columns.
        plain: The operator.
        count: The sum of what each window reads, of an image of one channel.
        gain: The length of its weights; 1 where it has none.
        terms: The terms of an output's sum.
        back_terms: Those of an input's gradient.
        fill: The value of pixels outside the image.
    """

    axes: tuple[WindowAxis, WindowAxis]
    plain: Plain
    count: Plain
    gain: float
    terms: float
    back_terms: float
    fill: float = 0.0


class WindowCheck:
    """The check of a convolution or pool over tiles, call by call.

    Args:
        name: The operator's name.
        module: The operator.
        comm: The ranks of its tiles, for these checks alone.
        work: The format in which it works.
        rounding: The rounding of the format.
        errors: Take in the errors.
    """

    def __init__(
        self,
        name: str,
        module: SpatialConv2d | TiledPool,
        comm: MPI.Intracomm,
        work: torch.dtype,
        rounding: Rounding,
        errors: OperatorErrors,
    ) -> None:
        self._name = name
        self._module = module
        self._comm = comm
        self._work = work
        self._rounding = rounding
        self._errors = errors
        self._scales: dict[str, ScaleError] = {}
        owned = module.tiled.tiling.partition
        made = module.tiled.output.partition
        self._size = owned.height, owned.width
        self._window = _window_of(module, work)
        self._winograd = (
            isinstance(module, SpatialConv2d)
            and fits_winograd(self._window.axes)
            and may_use_winograd(module.weight.device, rounding)
        )
        self._regions = Regions.of(
            self._window.axes,
            [owned.tile(rank) for rank in range(comm.size)],
            [made.tile(rank) for rank in range(comm.size)],
            (made.height, made.width),
            margin=REACH if self._winograd else 0,
        )

    def check(self, call: Call) -> None:
        """Compute a call again, and compare. All ranks of the tiles must call it together."""
        regions = self._regions
        rank = self._comm.rank
        fill = self._window.fill
        pixels = fetch(self._comm, call.pixels, regions.tiles, regions.inputs, fill)
        gradient = None
        if call.output_gradient is not None:
            gradient = fetch(self._comm, call.output_gradient, regions.made, regions.outputs)
        sums = _Sums.of(self._parameters())
        window = self._current()
        self._scales.clear()
        if not regions.outputs[rank].empty:
            for image in range(pixels.shape[0]):
                part = slice(image, image + 1)
                one = None if gradient is None else gradient[part].double()
                self._image(window, call, part, pixels[part].double(), one, sums)
        if gradient is not None:
            self._compare_parameters(call, sums)
        for what, scale in self._scales.items():
            self._errors.scales.add(scale.error, 1.0, f"{self._name}: {what}")

    def _parameters(self) -> dict[str, torch.Tensor]:
        return {name: one.detach() for name, one in self._module.named_parameters(recurse=False)}

    def _current(self) -> _Window:
        # Weights change from step to step, and so does their length.
        return _window_of(self._module, self._work)

    def _image(
        self,
        window: _Window,
        call: Call,
        part: slice,
        pixels: torch.Tensor,
        gradient: torch.Tensor | None,
        sums: _Sums,
    ) -> None:
        rank = self._comm.rank
        regions = self._regions
        parameters = [
            one.to(self._work).double().requires_grad_() for one in self._parameters().values()
        ]
        pixels.requires_grad_(gradient is not None)
        with torch.enable_grad():
            made = window.plain(pixels, *self._inside(pixels.device), *parameters)
            squares = pixels.detach().nan_to_num(0.0, 0.0, 0.0).square().sum(1, keepdim=True)
            squares.requires_grad_(gradient is not None)
            reach = window.count(squares)
        held = regions.outputs[rank]
        own = regions.made[rank]
        tile = regions.tiles[rank]
        wanted = cut(made.detach(), held, own)
        size = cut(reach.detach(), held, own).sqrt()[:, 0] * window.gain
        summed = size
        if self._winograd:
            # Scales keep their bounds: these errors have either sign.
            summed = cut(amplify(reach.detach()), held, own).sqrt()[:, 0] * window.gain
        bound = self._rounding.bound(length(wanted), summed, window.terms, wanted.shape[1])
        self._note(call.found[part], wanted, bound, own, "output")
        self._add("output", call.found[part], wanted, size, window.terms)
        if gradient is None:
            return
        (back,) = torch.autograd.grad(made, pixels, gradient, retain_graph=bool(parameters))
        (spread,) = torch.autograd.grad(reach, squares, gradient.square().sum(1, keepdim=True))
        if call.input_gradient is not None:
            box = regions.inputs[rank]
            inner = tile.intersect(box)
            wanted = torch.zeros((1, back.shape[1], tile.height, tile.width), dtype=back.dtype)
            wanted = wanted.to(back.device)
            size = wanted[:, :1].clone()
            cut(wanted, tile, inner).copy_(cut(back, box, inner))
            cut(size, tile, inner).copy_(cut(spread, box, inner))
            magnitude = summed = size.sqrt()[:, 0] * window.gain
            if self._winograd:
                cut(size, tile, inner).copy_(cut(amplify(spread), box, inner))
                summed = size.sqrt()[:, 0] * window.gain
            bound = self._rounding.bound(length(wanted), summed, window.back_terms, wanted.shape[1])
            found = call.input_gradient[part]
            self._note(found, wanted, bound, tile, "input gradient")
            self._add("input gradient", found, wanted, magnitude, window.back_terms)
        if parameters:
            own_gradient = torch.zeros_like(gradient)
            cut(own_gradient, held, own).copy_(cut(gradient, held, own))
            given = torch.autograd.grad(made, parameters, own_gradient)
            taps = float(cut(reach.detach(), held, own).sum())
            sums.add(given, taps, float(own_gradient.square().sum()), own.height * own.width)

    def _inside(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Return which pixels of the region are in the image, for a mean of these alone."""
        if not isinstance(self._module, SpatialAvgPool2d):
            return ()
        box = self._regions.inputs[self._comm.rank]
        inside = torch.zeros((1, 1, box.height, box.width), dtype=torch.float64)
        image = Box((0, self._size[0]), (0, self._size[1]))
        cut(inside, box, box.intersect(image)).fill_(1.0)
        return (inside.to(device),)

    def _add(
        self,
        what: str,
        found: torch.Tensor,
        wanted: torch.Tensor,
        magnitude: torch.Tensor,
        terms: float,
    ) -> None:
        """Take in an image for the scale of a tensor."""
        # The sum of magnitudes is that of a pixel's channels together: each has its share.
        each = magnitude[:, None] / math.sqrt(wanted.shape[1])
        scale = self._scales.setdefault(what, ScaleError(self._rounding))
        parts = each / math.sqrt(max(1.0, terms))
        pool = isinstance(self._module, TiledPool)
        scale.add(found.detach(), wanted, each, parts, terms if pool else STRIPS)

    def _note(
        self,
        found: torch.Tensor,
        wanted: torch.Tensor,
        bound: torch.Tensor,
        box: Box,
        what: str,
    ) -> None:
        error, (row, col) = worst_pixel(found.detach(), wanted, bound)
        at = f"row {row + box.rows[0]}, column {col + box.cols[0]}"
        self._errors.single.add(error, 1.0, f"{self._name}: {what} at {at}")

    def _compare_parameters(self, call: Call, sums: _Sums) -> None:
        """Compare the gradients of the parameters with the sum of what the tiles' images give."""
        names = list(self._parameters())
        flat = torch.cat([one.reshape(-1) for one in sums.gradients] + [sums.numbers])
        total = from_last_to_first(self._comm, flat)
        taps, squares, count = total[-3:].tolist()
        for name, wanted in zip(names, sums.gradients, strict=True):
            part, total = total[: wanted.numel()], total[wanted.numel() :]
            found = call.parameter_gradients.get(name)
            if found is None:
                self._errors.single.add(math.inf, 1.0, f"{self._name}: {name} has no gradient")
                continue
            reach = taps if wanted.dim() > 1 else count
            size = math.sqrt(reach * squares)
            bound = self._rounding.bound(part.norm(), part.new_tensor(size), count, part.numel())
            # Torch sums over all pixels, in an order of its own, what may be of one sign.
            bound = bound + STATISTICS_SLACK * self._rounding.sums * size
            flat = found.detach().double().reshape(-1).cpu()
            what = f"gradient of {name}"
            error = (flat - part).norm()
            self._errors.single.add(float(error / (bound + 1e-300)), 1.0, f"{self._name}: {what}")
            each = size / math.sqrt(part.numel())
            scale = self._scales.setdefault(what, ScaleError(self._rounding))
            scale.add(flat, part, each, each / math.sqrt(max(1.0, count)), STRIPS)


@dataclass(slots=True)
class _Sums:
    """The gradients of the parameters over the images of a call, and the size of their terms."""

    gradients: list[torch.Tensor]
    numbers: torch.Tensor

    @classmethod
    def of(cls, parameters: dict[str, torch.Tensor]) -> _Sums:
        zeros = [torch.zeros(one.shape, dtype=torch.float64) for one in parameters.values()]
        return cls(zeros, torch.zeros(3, dtype=torch.float64))

    def add(self, found: tuple[torch.Tensor, ...], taps: float, squares: float, count: int) -> None:
        for total, one in zip(self.gradients, found, strict=True):
            total.add_(one.cpu())
        self.numbers += torch.tensor([taps, squares, count], dtype=torch.float64)


def _window_of(module: SpatialConv2d | TiledPool, work: torch.dtype) -> _Window:
    if isinstance(module, SpatialConv2d):
        return _conv(module, work)
    assert isinstance(module, SpatialMaxPool2d | SpatialAvgPool2d), "there are no other pools"
    rows, cols = both_axes(module.kernel_size)
    strides = both_axes(module.stride)
    paddings = both_axes(module.padding)
    dilations = both_axes(module.dilation) if isinstance(module, SpatialMaxPool2d) else (1, 1)
    axes = tuple(map(WindowAxis, (rows, cols), strides, paddings, dilations))

    def count(squares: torch.Tensor) -> torch.Tensor:
        ones = squares.new_ones((1, 1, rows, cols))
        return functional.conv2d(squares, ones, None, strides, 0, dilations)

    def largest(pixels: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(pixels, (rows, cols), strides, 0, dilations)

    def mean(pixels: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        counted = functional.avg_pool2d(inside, (rows, cols), strides)
        return functional.avg_pool2d(pixels, (rows, cols), strides) / counted

    terms = rows * cols
    if isinstance(module, SpatialMaxPool2d):
        return _Window((axes[0], axes[1]), largest, count, 1.0, 1.0, terms, -math.inf)
    return _Window((axes[0], axes[1]), mean, count, 1.0, terms, terms)


def _conv(module: SpatialConv2d, work: torch.dtype) -> _Window:
    weight = module.weight.detach().to(work).double()
    stride = both_axes(module.stride)
    dilation = both_axes(module.dilation)
    groups = module.groups
    shifted = isinstance(module, SpatialShiftedConv2d)
    window = module.window
    kernel = (2, 2) if shifted else both_axes(module.kernel_size)
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

    def seen(pixels: torch.Tensor) -> torch.Tensor:
        return pixels[:, :, 1::2, 1::2] if shifted else pixels

    steps = (1, 1) if shifted else stride

    def plain(
        pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return _in_bands(seen(pixels), weight, bias, steps, dilation, groups)

    def count(squares: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(seen(squares), ones, None, steps, 0, dilation)

    taps = ones.numel()
    return _Window(
        (axes[0], axes[1]),
        plain,
        count,
        float(weight.norm()),
        taps * module.in_channels / groups,
        taps * module.out_channels / groups,
    )


def _in_bands(
    pixels: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> torch.Tensor:
    """Return a convolution without padding, by bands of rows.

    In float64 torch writes each output's window out, many times the pixels: a band has room for it.
    """
    span = dilation[0] * (weight.shape[2] - 1) + 1
    outputs = (pixels.shape[2] - span) // stride[0] + 1
    of_row = pixels.shape[1] * weight[0, 0].numel() * pixels.shape[3] * pixels.element_size()
    band = max(1, _BAND // of_row)
    words = (0, dilation, groups)
    parts = []
    for first in range(0, outputs, band):
        last = min(first + band, outputs) - 1
        rows = pixels[:, :, first * stride[0] : last * stride[0] + span]
        parts.append(functional.conv2d(rows, weight, bias, stride, *words))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
