"""Counterparts over tiles of an imported network's operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.layout.window import expand_pair
from spbench_parallel.models.imported.pixel_axes import MAP_AXES, is_tiled, map_size, pixel_axes
from spbench_parallel.models.imported.pointwise import get_arguments, get_slices, is_along_last
from spbench_parallel.models.imported.tracing import TracedNetwork
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.fetched.padded import (
    SpatialCeilMaxPool2d,
    SpatialPad2d,
    SpatialPaddedConv2d,
    get_pads,
)
from spbench_parallel.spatial.fetched.transposed_conv import SpatialConvTranspose2d
from spbench_parallel.spatial.fetched.weighted import (
    SpatialWeightedSums,
    adaptive_taps,
    pooling_taps,
    resizing_taps,
)
from spbench_parallel.spatial.group_norm import SpatialGroupNorm
from spbench_parallel.spatial.pixelwise import PixelwiseOperator
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.tiling import Tiling

NormFactory = Callable[[nn.BatchNorm2d, Tiling], nn.Module]
"""Returns the batch normalisation over tiles in the place of one of whole images."""
Sides = tuple[int, int]
"""Height and width."""

_POOLS: dict[Any, type[nn.Module]] = {
    functional.max_pool2d: nn.MaxPool2d,
    torch.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
}
"""Functions of pools, and the modules of the same arguments."""
_RESIZING = "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"
_MODES = "nearest", "nearest-exact", "bilinear"


@dataclass(frozen=True, slots=True)
class ConversionSpec:
    """The parts of a counterpart: the operator of whole images, its sizes, and the tiles.

    Attributes:
        module: A copy of the operator of whole images, with its weights; None of a function.
        given: Height and width of the input.
        made: Those of the output.
        tiling: The tiles of the input.
        norm_of: Makes batch normalisation.
    """

    module: Any
    given: Sides
    made: Sides
    tiling: Tiling
    norm_of: NormFactory


CounterpartFactory = Callable[[ConversionSpec], nn.Module]
"""Makes an operator over tiles.

Raises:
    ValueError: It cannot be over such tiles.
"""


def find_counterpart(network: TracedNetwork, node: fx.Node) -> CounterpartFactory | None:
    """Return what makes the counterpart of an operator over tiles; None where there is none."""
    source = node.all_input_nodes[0]
    axes = pixel_axes(network).get(source)
    if not is_tiled(network, node):
        return None
    module = find_module(network, node)
    if isinstance(module, nn.PReLU) and axes == MAP_AXES:
        return _pixelwise
    if is_along_last(module) and axes is not None and axes[1] < len(network.shapes[source]) - 1:
        return _pixelwise
    if axes != MAP_AXES or pixel_axes(network)[node] != MAP_AXES:
        return None
    return _of_module(module) if module is not None else _of_function(network, node, source)


def find_module(network: TracedNetwork, node: fx.Node) -> nn.Module | None:
    """Return the module that a node calls, or that of the same pool as the function it calls.

    None where it is neither.
    """
    if node.target not in _POOLS:
        return network.get_module(node)
    kwargs = {name: value for name, value in node.kwargs.items() if name != "input"}
    try:
        return _POOLS[node.target](*node.args[1:], **kwargs)
    except TypeError:
        return None


def _of_module(module: nn.Module) -> CounterpartFactory | None:
    match module:
        case nn.Conv2d():
            return _conv
        case nn.ConvTranspose2d():
            return lambda of: SpatialConvTranspose2d(of.module, of.made, tiling=of.tiling)
        case nn.MaxPool2d():
            return None if module.return_indices else _max_pool
        case nn.AvgPool2d():
            return _avg_pool
        case nn.AdaptiveAvgPool2d():
            return _adaptive_pool
        case nn.GroupNorm():
            return _group_norm
        case nn.InstanceNorm2d():
            return None if module.track_running_stats else _instance_norm
        case nn.BatchNorm2d():
            return lambda of: of.norm_of(of.module, of.tiling)
        case nn.Upsample() if module.mode in _MODES:
            factor = None if module.recompute_scale_factor else module.scale_factor
            return _resizing(module.mode, module.align_corners, factor)
        case nn.ZeroPad2d() | nn.ConstantPad2d():
            return _pad(module.padding, "constant", module.value)
        case nn.ReflectionPad2d():
            return _pad(module.padding, "reflect", 0.0)
        case nn.ReplicationPad2d():
            return _pad(module.padding, "replicate", 0.0)
        case nn.CircularPad2d():
            return _pad(module.padding, "circular", 0.0)
    return None


def _of_function(
    network: TracedNetwork, node: fx.Node, source: fx.Node
) -> CounterpartFactory | None:
    if node.target is functional.interpolate:
        words = get_arguments(node, _RESIZING)
        factor = None if words.get("recompute_scale_factor") else words.get("scale_factor")
        mode = words.get("mode", "nearest")
        known = not isinstance(factor, fx.Node)
        if mode in _MODES and known and not words.get("antialias"):
            return _resizing(mode, words.get("align_corners"), factor)
    if node.target is functional.pad:
        words = get_arguments(node, ("pad", "mode", "value"))
        pads = words.get("pad", ())
        whole = isinstance(pads, list | tuple) and all(isinstance(one, int) for one in pads)
        if whole and len(pads) in (2, 4):
            sides = (*pads, 0, 0)[:4]
            return _pad(sides, words.get("mode", "constant"), words.get("value") or 0.0)
    slices = get_slices(node)
    if slices is not None and all(one == slice(None) for one in slices[:2]):
        return _crop(slices[2:], map_size(network, source))
    return None


def _pixelwise(of: ConversionSpec) -> nn.Module:
    return PixelwiseOperator(of.module, of.tiling.comm)


def _conv(of: ConversionSpec) -> nn.Module:
    conv: nn.Conv2d = of.module
    left, right, top, bottom = get_pads(conv)
    if conv.padding_mode != "zeros" or left != right or top != bottom:
        return SpatialPaddedConv2d(conv, tiling=of.tiling)
    return SpatialConv2d(
        conv.in_channels,
        conv.out_channels,
        expand_pair(conv.kernel_size),
        expand_pair(conv.stride),
        (top, left),
        expand_pair(conv.dilation),
        conv.groups,
        conv.bias is not None,
        tiling=of.tiling,
    )


def _max_pool(of: ConversionSpec) -> nn.Module:
    pool: nn.MaxPool2d = of.module
    windows = pool.kernel_size, pool.stride, pool.padding, pool.dilation
    if pool.ceil_mode:
        return SpatialCeilMaxPool2d(*windows, sides=of.made, tiling=of.tiling)
    return SpatialMaxPool2d(*windows, tiling=of.tiling)


def _avg_pool(of: ConversionSpec) -> nn.Module:
    pool: nn.AvgPool2d = of.module
    sizes = pool.kernel_size, pool.stride, pool.padding
    if not pool.ceil_mode and pool.divisor_override is None:
        return SpatialAvgPool2d(*sizes, pool.count_include_pad, tiling=of.tiling)
    rows, cols = (
        pooling_taps(
            *axis,
            counts_padding=pool.count_include_pad,
            divisor=None if pool.divisor_override is None else pool.divisor_override ** (1 - at),
        )
        for at, axis in enumerate(zip(of.given, of.made, *map(expand_pair, sizes), strict=True))
    )
    return SpatialWeightedSums(rows, cols, tiling=of.tiling)


def _adaptive_pool(of: ConversionSpec) -> nn.Module:
    rows, cols = (adaptive_taps(*axis) for axis in zip(of.given, of.made, strict=True))
    return SpatialWeightedSums(rows, cols, tiling=of.tiling)


def _group_norm(of: ConversionSpec) -> nn.Module:
    norm: nn.GroupNorm = of.module
    words = norm.num_groups, norm.num_channels, norm.eps, norm.affine
    return SpatialGroupNorm(*words, tiling=of.tiling)


def _instance_norm(of: ConversionSpec) -> nn.Module:
    norm: nn.InstanceNorm2d = of.module
    words = norm.num_features, norm.num_features, norm.eps, norm.affine
    return SpatialGroupNorm(*words, tiling=of.tiling)


def _resizing(mode: str, align_corners: bool | None, factor: Any) -> CounterpartFactory:
    factors = factor if isinstance(factor, tuple | list) else (factor, factor)

    def make(of: ConversionSpec) -> nn.Module:
        rows, cols = (
            resizing_taps(given, made, mode, align_corners=align_corners, scale_factor=one)
            for given, made, one in zip(of.given, of.made, factors, strict=True)
        )
        return SpatialWeightedSums(rows, cols, tiling=of.tiling)

    return make


def _pad(pads: Any, mode: str, value: float) -> CounterpartFactory:
    left, right, top, bottom = pads if isinstance(pads, tuple | list) else (pads,) * 4
    return lambda of: SpatialPad2d((left, right, top, bottom), mode, value, tiling=of.tiling)


def _crop(slices: tuple[slice, ...], sides: Sides) -> CounterpartFactory | None:
    """Return what makes a crop of some rows and columns, one by one."""
    cuts = [
        one.indices(length)
        for one, length in zip((*slices, slice(None), slice(None)), sides, strict=False)
        if all(isinstance(word, int | None) for word in (one.start, one.stop, one.step))
    ]
    if len(cuts) != 2 or any(step != 1 for _, _, step in cuts):
        return None
    (top, below, _), (left, beyond, _) = cuts
    pads = -left, beyond - sides[1], -top, below - sides[0]
    return lambda of: SpatialPad2d(pads, tiling=of.tiling)
