"""MobileNets, which convolve channel by channel; only the classifier has a bias."""

from __future__ import annotations

from spbench_core.models.compose import require_equal_shapes
from spbench_core.models.parts import MapShape, Mean
from spbench_core.mxnet_networks.graph import ParameterCollector

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


def mobilenet(graph: ParameterCollector, image: MapShape, num_classes: int, alpha: float) -> None:
    """Add the layers of MobileNet with ``alpha`` times the filters.

    Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
    Applications", 2017. Its last pool is 7x7, for an image of 224x224. With a larger image it
    leaves more than one value per channel, and the classifier grows.
    """
    shape = graph.conv(image, int(32 * alpha), 3, stride=2, pad=1, name="conv_1_conv2d")
    for layer, (filters, stride) in enumerate(_V1_LAYERS, start=2):
        shape = _add_depthwise(graph, shape, stride, f"conv_{layer}_dw_conv2d")
        shape = graph.conv(shape, int(filters * alpha), name=f"conv_{layer}_conv2d")
    graph.dense(graph.pool(shape, 7, name="global_pool"), num_classes, name="fc")


def mobilenetv2(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of MobileNetV2.

    Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
    """
    shape = graph.conv(image, 32, 3, stride=2, pad=1, name="first-3x3-conv-conv2d")
    for block, (expansion, filters, units, stride) in enumerate(_V2_BLOCKS):
        for unit in range(units):
            name = f"seq-{block}-block{unit}"
            unit_stride = stride if unit == 0 else 1
            body = _add_inverted_residual(graph, shape, expansion, filters, unit_stride, name)
            shape = body if unit == 0 else require_equal_shapes(body, shape)
    shape = graph.conv(shape, 1280, name="last-1x1-conv-conv2d")
    graph.dense(Mean().output(shape), num_classes, name="fc")


def _add_inverted_residual(
    graph: ParameterCollector, shape: MapShape, expansion: int, filters: int, stride: int, name: str
) -> MapShape:
    """Add an inverted residual unit, which is wide inside and narrow at its ends.

    Args:
        graph: The network.
        shape: The shape of the input.
        expansion: The number of channels inside for each channel of the input.
        filters: The channels of the output.
        stride: The stride of the depthwise convolution.
        name: The beginning of the names of its layers.
    """
    shape = graph.conv(shape, shape.channels * expansion, name=f"{name}-exp-conv2d")
    shape = _add_depthwise(graph, shape, stride, f"{name}-depthwise-conv2d")
    return graph.conv(shape, filters, name=f"{name}-linear-conv2d")


def _add_depthwise(graph: ParameterCollector, shape: MapShape, stride: int, name: str) -> MapShape:
    return graph.conv(
        shape, shape.channels, 3, stride=stride, pad=1, groups=shape.channels, name=name
    )
