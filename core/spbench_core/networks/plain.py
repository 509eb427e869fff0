"""Networks without concatenated branches.

LeNet, a perceptron, AlexNet, VGG and MobileNets.

All layers have a bias, except that only the classifier of MobileNets has one. LeCun et al.,
"Gradient-Based Learning Applied to Document Recognition", 1998; Krizhevsky et al., "ImageNet
Classification with Deep Convolutional Neural Networks", 2012; Simonyan and Zisserman, "Very Deep
Convolutional Networks", 2014; Howard et al., "MobileNets", 2017; Sandler et al., "MobileNetV2:
Inverted Residuals and Linear Bottlenecks", 2018.
"""

from __future__ import annotations

from spbench_core.models.compose import add_maps
from spbench_core.models.parts import Map, Mean
from spbench_core.networks.graph import NetworkGraph


def lenet(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of LeNet, which have no names in MXNet."""
    data = graph.pool(graph.conv(image, 20, 5, bias=True), 2, stride=2)
    data = graph.pool(graph.conv(data, 50, 5, bias=True), 2, stride=2)
    graph.dense(graph.dense(data, 500), num_classes)


def mlp(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of a multilayer perceptron with two hidden layers."""
    data = graph.dense(image, 128, name="fc1")
    data = graph.dense(data, 64, name="fc2")
    graph.dense(data, num_classes, name="fc3")


def alexnet(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of AlexNet, with biases and without its two halves."""
    data = graph.conv(image, 96, 11, stride=4, bias=True, name="conv1")
    data = graph.pool(data, 3, stride=2)
    data = graph.conv(data, 256, 5, pad=2, bias=True, name="conv2")
    data = graph.pool(data, 3, stride=2)
    for name, filters in (("conv3", 384), ("conv4", 384), ("conv5", 256)):
        data = graph.conv(data, filters, 3, pad=1, bias=True, name=name)
    data = graph.pool(data, 3, stride=2)
    data = graph.dense(data, 4096, name="fc1")
    data = graph.dense(data, 4096, name="fc2")
    graph.dense(data, num_classes, name="fc3")


CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
"""Convolutions of each stage, by depth."""
FILTERS = (64, 128, 256, 512, 512)


def vgg(graph: NetworkGraph, image: Map, num_classes: int, depth: int) -> None:
    """Add the layers of VGG; ``depth`` is one of `CONVOLUTIONS`."""
    data = image
    for stage, (count, filters) in enumerate(zip(CONVOLUTIONS[depth], FILTERS, strict=True), 1):
        for number in range(1, count + 1):
            data = graph.conv(data, filters, 3, pad=1, bias=True, name=f"conv{stage}_{number}")
        data = graph.pool(data, 2, stride=2, name=f"pool{stage}")
    data = graph.dense(data, 4096, name="fc6")
    data = graph.dense(data, 4096, name="fc7")
    graph.dense(data, num_classes, name="fc8")


_V1 = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
"""Filters and stride of each layer after the first, at full width."""
_V2 = (
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

    Its last pool is 7x7, for an image of 224x224. With a larger image it leaves more than one value
    per channel, and the classifier grows.
    """
    data = graph.conv(image, int(32 * alpha), 3, stride=2, pad=1, name="conv_1_conv2d")
    for layer, (filters, stride) in enumerate(_V1, start=2):
        data = _depthwise(graph, data, stride, f"conv_{layer}_dw_conv2d")
        data = graph.conv(data, int(filters * alpha), name=f"conv_{layer}_conv2d")
    graph.dense(graph.pool(data, 7, name="global_pool"), num_classes, name="fc")


def mobilenetv2(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of MobileNetV2."""
    data = graph.conv(image, 32, 3, stride=2, pad=1, name="first-3x3-conv-conv2d")
    for block, (expansion, filters, units, stride) in enumerate(_V2):
        for unit in range(units):
            name = f"seq-{block}-block{unit}"
            unit_stride = stride if unit == 0 else 1
            body = _inverted_residual(graph, data, expansion, filters, unit_stride, name)
            data = body if unit == 0 else add_maps(body, data)
    data = graph.conv(data, 1280, name="last-1x1-conv-conv2d")
    graph.dense(Mean().output(data), num_classes, name="fc")


def _inverted_residual(
    graph: NetworkGraph, data: Map, expansion: int, filters: int, stride: int, name: str
) -> Map:
    """Add an inverted residual unit, which is wide inside and narrow at its ends."""
    data = graph.conv(data, data.channels * expansion, name=f"{name}-exp-conv2d")
    data = _depthwise(graph, data, stride, f"{name}-depthwise-conv2d")
    return graph.conv(data, filters, name=f"{name}-linear-conv2d")


def _depthwise(graph: NetworkGraph, data: Map, stride: int, name: str) -> Map:
    return graph.conv(data, data.channels, 3, stride=stride, pad=1, groups=data.channels, name=name)
