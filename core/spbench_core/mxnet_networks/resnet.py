"""Residual networks: pre-activation, original (v1) and grouped (resnext).

Stages, units and names are those of MXNet, so that gradients have the same keys. He et al., "Deep
Residual Learning for Image Recognition", 2015; "Identity Mappings in Deep Residual Networks",
2016; Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spbench_core.models.compose import require_equal_shapes
from spbench_core.models.parts import MapShape, Mean
from spbench_core.mxnet_networks.graph import ParameterCollector

UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}
"""The number of units in each of the four stages, by depth; from 50 on they are bottlenecks."""
SMALL_STEM = 32
"""The greatest image height with a first convolution that keeps the image's size."""
SMALL_DEPTHS = "6n+2 below 164 (8, 14, 20, ..., 158) and 9n+2 from 164 on (164, 173, 182, ...)"
"""The depths of the networks with three stages, for small images such as those of CIFAR."""


@dataclass(frozen=True, slots=True)
class Style:
    """The differences between the families of residual networks.

    Attributes:
        small: The greatest image height for the network of three stages.
        narrowing: The factor by which a bottleneck is narrower than its output.
        groups: Groups of a bottleneck's 3x3 convolution.
        stride_first: Whether a bottleneck's first convolution has its stride, not its second.
        shortcut: The name of a shortcut's convolution.
    """

    small: int = 28
    narrowing: int = 4
    groups: int = 1
    stride_first: bool = False
    shortcut: str = "sc"


RESNET = Style()
RESNET_V1 = Style(stride_first=True, shortcut="conv1sc")
RESNEXT = Style(small=32, narrowing=2, groups=32)


def is_small_depth(depth: int) -> bool:
    """Return whether a network of three stages has this depth: see `SMALL_DEPTHS`."""
    return depth > 2 and (depth - 2) % (6 if depth < 164 else 9) == 0


def resnet(
    graph: ParameterCollector, image: MapShape, num_classes: int, depth: int, style: Style
) -> None:
    """Add the layers of a residual network of a depth for the image's height."""
    stages = _choose_stages(image.height <= style.small, depth)
    shape = _add_stem(graph, image, stages.filters[0])
    unit_stages = zip(stages.units, stages.filters[1:], strict=True)
    for stage, (units, width) in enumerate(unit_stages, start=1):
        for unit in range(1, units + 1):
            name = f"stage{stage}_unit{unit}_"
            stride = 2 if stage > 1 and unit == 1 else 1
            add_body = _add_bottleneck_body if stages.have_bottlenecks else _add_basic_body
            body = add_body(graph, shape, width, stride, name, style)
            if unit == 1:  # even if size and width do not change
                shortcut = f"{name}{style.shortcut}"
                shape = graph.conv(shape, width, stride=stride, name=shortcut)
            shape = require_equal_shapes(body, shape)
    graph.dense(Mean().output(shape), num_classes, name="fc1")


class _Stages(NamedTuple):
    """The stages of a residual network.

    Attributes:
        units: The number of units of each stage.
        filters: The filters of the stem and of each stage.
        have_bottlenecks: Whether units narrow the map inside.
    """

    units: Sequence[int]
    filters: Sequence[int]
    have_bottlenecks: bool


def _choose_stages(small: bool, depth: int) -> _Stages:
    if not small:
        if depth >= 50:
            return _Stages(UNITS[depth], (64, 256, 512, 1024, 2048), True)
        return _Stages(UNITS[depth], (64, 64, 128, 256, 512), False)
    if depth >= 164:
        return _Stages([(depth - 2) // 9] * 3, (16, 64, 128, 256), True)
    return _Stages([(depth - 2) // 6] * 3, (16, 16, 32, 64), False)


def _add_stem(graph: ParameterCollector, image: MapShape, filters: int) -> MapShape:
    if image.height <= SMALL_STEM:
        return graph.conv(image, filters, 3, pad=1, name="conv0")
    return graph.pool(
        graph.conv(image, filters, 7, stride=2, pad=3, name="conv0"), 3, stride=2, pad=1
    )


def _add_basic_body(
    graph: ParameterCollector, shape: MapShape, width: int, stride: int, name: str, _: Style
) -> MapShape:
    shape = graph.conv(shape, width, 3, stride=stride, pad=1, name=f"{name}conv1")
    return graph.conv(shape, width, 3, pad=1, name=f"{name}conv2")


def _add_bottleneck_body(
    graph: ParameterCollector, shape: MapShape, width: int, stride: int, name: str, style: Style
) -> MapShape:
    inner_filters = width // style.narrowing
    strides = (stride, 1) if style.stride_first else (1, stride)
    shape = graph.conv(shape, inner_filters, stride=strides[0], name=f"{name}conv1")
    shape = graph.conv(
        shape, inner_filters, 3, stride=strides[1], pad=1, groups=style.groups, name=f"{name}conv2"
    )
    return graph.conv(shape, width, name=f"{name}conv3")
