"""Counterparts over tiles of an imported network's operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.layout.window import expand_pair
from spbench_parallel.models.imported.pixel_axes import (
    MAP_AXES,
    find_pixel_axes,
    get_map_size,
    is_tiled,
)
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
    make_adaptive_taps,
    make_pooling_taps,
    make_resizing_taps,
)
from spbench_parallel.spatial.gradients import PixelwiseOperator
from spbench_parallel.spatial.group_norm import SpatialGroupNorm
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.tiling import Tiling

NormFactory = Callable[[nn.BatchNorm2d, Tiling], nn.Module]
"""Returns the tiled counterpart of a batch normalisation."""
Sides = tuple[int, int]
"""Height and width."""

_POOLS: dict[Any, type[nn.Module]] = {
    functional.max_pool2d: nn.MaxPool2d,
    torch.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
}
"""Pooling functions, and the modules with the same arguments."""
_RESIZE_ARGUMENTS = (
    "size",
    "scale_factor",
    "mode",
    "align_corners",
    "recompute_scale_factor",
    "antialias",
)
_RESIZE_MODES = "nearest", "nearest-exact", "bilinear"


@dataclass(frozen=True, slots=True)
class ConversionSpec:
    """An operator of whole images, with the data to create its tiled counterpart.

    Attributes:
        module: A copy of the operator with its weights; None for a function.
        input_sides: Height and width of the input.
        output_sides: Height and width of the output.
        tiling: The tiles of the input.
        norm_factory: Creates batch normalisation.
    """

    module: Any
    input_sides: Sides
    output_sides: Sides
    tiling: Tiling
    norm_factory: NormFactory


CounterpartFactory = Callable[[ConversionSpec], nn.Module]
"""Creates an operator over tiles.

Raises:
    ValueError: The operator does not support such tiles.
"""


def find_counterpart(network: TracedNetwork, node: fx.Node) -> CounterpartFactory | None:
    """Return the factory of an operator's tiled counterpart; None if it has none."""
    source = node.all_input_nodes[0]
    axes = find_pixel_axes(network).get(source)
    if not is_tiled(network, node):
        return None
    module = find_module(network, node)
    if isinstance(module, nn.PReLU) and axes == MAP_AXES:
        return _make_pixelwise
    if is_along_last(module) and axes is not None and axes[1] < len(network.shapes[source]) - 1:
        return _make_pixelwise
    if axes != MAP_AXES or find_pixel_axes(network)[node] != MAP_AXES:
        return None
    return (
        _find_module_factory(module)
        if module is not None
        else _find_function_factory(network, node, source)
    )


def find_module(network: TracedNetwork, node: fx.Node) -> nn.Module | None:
    """Return the module that a node calls, or the equivalent of a pooling function.

    It is None for other functions.
    """
    if node.target not in _POOLS:
        return network.get_module(node)
    kwargs = {name: value for name, value in node.kwargs.items() if name != "input"}
    try:
        return _POOLS[node.target](*node.args[1:], **kwargs)
    except TypeError:
        return None


def _find_module_factory(module: nn.Module) -> CounterpartFactory | None:
    match module:
        case nn.Conv2d():
            return _make_conv
        case nn.ConvTranspose2d():
            return lambda spec: SpatialConvTranspose2d(
                spec.module, spec.output_sides, tiling=spec.tiling
            )
        case nn.MaxPool2d():
            return None if module.return_indices else _make_max_pool
        case nn.AvgPool2d():
            return _make_avg_pool
        case nn.AdaptiveAvgPool2d():
            return _make_adaptive_pool
        case nn.GroupNorm():
            return _make_group_norm
        case nn.InstanceNorm2d():
            return None if module.track_running_stats else _make_instance_norm
        case nn.BatchNorm2d():
            return lambda spec: spec.norm_factory(spec.module, spec.tiling)
        case nn.Upsample() if module.mode in _RESIZE_MODES:
            scale_factor = None if module.recompute_scale_factor else module.scale_factor
            return _make_resize_factory(module.mode, module.align_corners, scale_factor)
        case nn.ZeroPad2d() | nn.ConstantPad2d():
            return _make_pad_factory(module.padding, "constant", module.value)
        case nn.ReflectionPad2d():
            return _make_pad_factory(module.padding, "reflect", 0.0)
        case nn.ReplicationPad2d():
            return _make_pad_factory(module.padding, "replicate", 0.0)
        case nn.CircularPad2d():
            return _make_pad_factory(module.padding, "circular", 0.0)
    return None


def _find_function_factory(
    network: TracedNetwork, node: fx.Node, source: fx.Node
) -> CounterpartFactory | None:
    if node.target is functional.interpolate:
        arguments = get_arguments(node, _RESIZE_ARGUMENTS)
        scale_factor = (
            None if arguments.get("recompute_scale_factor") else arguments.get("scale_factor")
        )
        mode = arguments.get("mode", "nearest")
        is_scale_known = not isinstance(scale_factor, fx.Node)
        if mode in _RESIZE_MODES and is_scale_known and not arguments.get("antialias"):
            return _make_resize_factory(mode, arguments.get("align_corners"), scale_factor)
    if node.target is functional.pad:
        arguments = get_arguments(node, ("pad", "mode", "value"))
        pads = arguments.get("pad", ())
        is_static = isinstance(pads, list | tuple) and all(
            isinstance(element, int) for element in pads
        )
        if is_static and len(pads) in (2, 4):
            all_pads = (*pads, 0, 0)[:4]
            return _make_pad_factory(
                all_pads, arguments.get("mode", "constant"), arguments.get("value") or 0.0
            )
    slices = get_slices(node)
    if slices is not None and all(element == slice(None) for element in slices[:2]):
        return _make_crop_factory(slices[2:], get_map_size(network, source))
    return None


def _make_pixelwise(spec: ConversionSpec) -> nn.Module:
    return PixelwiseOperator(spec.module, spec.tiling.comm)


def _make_conv(spec: ConversionSpec) -> nn.Module:
    conv: nn.Conv2d = spec.module
    left, right, top, bottom = get_pads(conv)
    if conv.padding_mode != "zeros" or left != right or top != bottom:
        return SpatialPaddedConv2d(conv, tiling=spec.tiling)
    return SpatialConv2d(
        conv.in_channels,
        conv.out_channels,
        expand_pair(conv.kernel_size),
        expand_pair(conv.stride),
        (top, left),
        expand_pair(conv.dilation),
        conv.groups,
        conv.bias is not None,
        tiling=spec.tiling,
    )


def _make_max_pool(spec: ConversionSpec) -> nn.Module:
    pool: nn.MaxPool2d = spec.module
    window_arguments = pool.kernel_size, pool.stride, pool.padding, pool.dilation
    if pool.ceil_mode:
        return SpatialCeilMaxPool2d(*window_arguments, sides=spec.output_sides, tiling=spec.tiling)
    return SpatialMaxPool2d(*window_arguments, tiling=spec.tiling)


def _make_avg_pool(spec: ConversionSpec) -> nn.Module:
    pool: nn.AvgPool2d = spec.module
    window_arguments = pool.kernel_size, pool.stride, pool.padding
    if not pool.ceil_mode and pool.divisor_override is None:
        return SpatialAvgPool2d(*window_arguments, pool.count_include_pad, tiling=spec.tiling)
    rows, cols = (
        make_pooling_taps(
            *axis,
            counts_padding=pool.count_include_pad,
            divisor=None if pool.divisor_override is None else pool.divisor_override ** (1 - index),
        )
        for index, axis in enumerate(
            zip(
                spec.input_sides,
                spec.output_sides,
                *map(expand_pair, window_arguments),
                strict=True,
            )
        )
    )
    return SpatialWeightedSums(rows, cols, tiling=spec.tiling)


def _make_adaptive_pool(spec: ConversionSpec) -> nn.Module:
    rows, cols = (
        make_adaptive_taps(*axis) for axis in zip(spec.input_sides, spec.output_sides, strict=True)
    )
    return SpatialWeightedSums(rows, cols, tiling=spec.tiling)


def _make_group_norm(spec: ConversionSpec) -> nn.Module:
    norm: nn.GroupNorm = spec.module
    arguments = norm.num_groups, norm.num_channels, norm.eps, norm.affine
    return SpatialGroupNorm(*arguments, tiling=spec.tiling)


def _make_instance_norm(spec: ConversionSpec) -> nn.Module:
    norm: nn.InstanceNorm2d = spec.module
    arguments = norm.num_features, norm.num_features, norm.eps, norm.affine
    return SpatialGroupNorm(*arguments, tiling=spec.tiling)


def _make_resize_factory(
    mode: str, align_corners: bool | None, scale_factor: Any
) -> CounterpartFactory:
    scale_factors = (
        scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor, scale_factor)
    )

    def make(spec: ConversionSpec) -> nn.Module:
        rows, cols = (
            make_resizing_taps(
                input_length, output_length, mode, align_corners=align_corners, scale_factor=scale
            )
            for input_length, output_length, scale in zip(
                spec.input_sides, spec.output_sides, scale_factors, strict=True
            )
        )
        return SpatialWeightedSums(rows, cols, tiling=spec.tiling)

    return make


def _make_pad_factory(pads: Any, mode: str, value: float) -> CounterpartFactory:
    left, right, top, bottom = pads if isinstance(pads, tuple | list) else (pads,) * 4
    return lambda spec: SpatialPad2d((left, right, top, bottom), mode, value, tiling=spec.tiling)


def _make_crop_factory(slices: tuple[slice, ...], sides: Sides) -> CounterpartFactory | None:
    """Return the factory of a contiguous crop; None for other slices."""
    bounds_by_axis = [
        slice_.indices(length)
        for slice_, length in zip((*slices, slice(None), slice(None)), sides, strict=False)
        if all(isinstance(bound, int | None) for bound in (slice_.start, slice_.stop, slice_.step))
    ]
    if len(bounds_by_axis) != 2 or any(step != 1 for _, _, step in bounds_by_axis):
        return None
    (top, bottom, _), (left, right, _) = bounds_by_axis
    pads = -left, right - sides[1], -top, bottom - sides[0]
    return lambda spec: SpatialPad2d(pads, tiling=spec.tiling)
