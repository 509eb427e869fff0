"""MobileNets, which convolve channel by channel; only the classifier has a bias."""

from __future__ import annotations

from spbench_core.models.compose import add_maps
from spbench_core.models.parts import Map, Mean
from spbench_core.networks.graph import NetworkGraph

_V1_LAYERS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
"""Filters and stride of each layer after the first, at full width."""
_V2_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""The expansion factor of a block, its filters, its number of units, and its stride."""


def mobilenet(graph: NetworkGraph, image: Map, num_classes: int, alpha: float) -> None:
    """Add the layers of MobileNet with ``alpha`` times the filters.

    Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
    Applications", 2017. Its last pool is 7x7, for an image of 224x224. With a larger image it
    leaves more than one value per channel, and the classifier grows.
    """
    data = graph.conv(image, int(32 * alpha), 3, stride=2, pad=1, name="conv_1_conv2d")
    for layer, (filters, stride) in enumerate(_V1_LAYERS, start=2):
        data = _add_depthwise(graph, data, stride, f"conv_{layer}_dw_conv2d")
        data = graph.conv(data, int(filters * alpha), name=f"conv_{layer}_conv2d")
    graph.dense(graph.pool(data, 7, name="global_pool"), num_classes, name="fc")


def mobilenetv2(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of MobileNetV2.

    Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
    """
    data = graph.conv(image, 32, 3, stride=2, pad=1, name="first-3x3-conv-conv2d")
    for block, (expansion, filters, units, stride) in enumerate(_V2_BLOCKS):
        for unit in range(units):
            name = f"seq-{block}-block{unit}"
            unit_stride = stride if unit == 0 else 1
            body = _add_inverted_residual(graph, data, expansion, filters, unit_stride, name)
            data = body if unit == 0 else add_maps(body, data)
    data = graph.conv(data, 1280, name="last-1x1-conv-conv2d")
    graph.dense(Mean().output(data), num_classes, name="fc")


def _add_inverted_residual(
    graph: NetworkGraph, data: Map, expansion: int, filters: int, stride: int, name: str
) -> Map:
    """Add an inverted residual unit, which is wide inside and narrow at its ends.

    Args:
        graph: The network.
        data: The shape of the input.
        expansion: The number of channels inside for each channel of the input.
        filters: The channels of the output.
        stride: The stride of the depthwise convolution.
        name: The beginning of the names of its layers.
    """
    data = graph.conv(data, data.channels * expansion, name=f"{name}-exp-conv2d")
    data = _add_depthwise(graph, data, stride, f"{name}-depthwise-conv2d")
    return graph.conv(data, filters, name=f"{name}-linear-conv2d")


def _add_depthwise(graph: NetworkGraph, data: Map, stride: int, name: str) -> Map:
    return graph.conv(data, data.channels, 3, stride=stride, pad=1, groups=data.channels, name=name)
