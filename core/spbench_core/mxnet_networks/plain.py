"""Networks without branches: LeNet, a perceptron, AlexNet and VGG.

All layers have a bias.
"""

from __future__ import annotations

from spbench_core.models.parts import MapShape
from spbench_core.mxnet_networks.graph import ParameterCollector


def lenet(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of LeNet, which have no names in MXNet.

    LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998.
    """
    shape = graph.pool(graph.conv(image, 20, 5, bias=True), 2, stride=2)
    shape = graph.pool(graph.conv(shape, 50, 5, bias=True), 2, stride=2)
    graph.dense(graph.dense(shape, 500), num_classes)


def mlp(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of a multilayer perceptron with two hidden layers."""
    shape = graph.dense(image, 128, name="fc1")
    shape = graph.dense(shape, 64, name="fc2")
    graph.dense(shape, num_classes, name="fc3")


def alexnet(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of AlexNet, without the division over two GPUs.

    Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks", 2012.
    """
    shape = graph.conv(image, 96, 11, stride=4, bias=True, name="conv1")
    shape = graph.pool(shape, 3, stride=2)
    shape = graph.conv(shape, 256, 5, pad=2, bias=True, name="conv2")
    shape = graph.pool(shape, 3, stride=2)
    for name, filters in (("conv3", 384), ("conv4", 384), ("conv5", 256)):
        shape = graph.conv(shape, filters, 3, pad=1, bias=True, name=name)
    shape = graph.pool(shape, 3, stride=2)
    shape = graph.dense(shape, 4096, name="fc1")
    shape = graph.dense(shape, 4096, name="fc2")
    graph.dense(shape, num_classes, name="fc3")


VGG_CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
"""The number of convolutions of each stage, by depth."""
VGG_FILTERS = (64, 128, 256, 512, 512)
"""Filters of the convolutions of each stage."""


def vgg(graph: ParameterCollector, image: MapShape, num_classes: int, depth: int) -> None:
    """Add the layers of VGG; ``depth`` is one of `VGG_CONVOLUTIONS`.

    Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
    2014.
    """
    shape = image
    stages = zip(VGG_CONVOLUTIONS[depth], VGG_FILTERS, strict=True)
    for stage, (convolutions, filters) in enumerate(stages, start=1):
        for number in range(1, convolutions + 1):
            shape = graph.conv(shape, filters, 3, pad=1, bias=True, name=f"conv{stage}_{number}")
        shape = graph.pool(shape, 2, stride=2, name=f"pool{stage}")
    shape = graph.dense(shape, 4096, name="fc6")
    shape = graph.dense(shape, 4096, name="fc7")
    graph.dense(shape, num_classes, name="fc8")
