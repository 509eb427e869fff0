"""AlexNet.

Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks", 2012.
"""

from __future__ import annotations

from spbench_core.models.parts import Map
from spbench_core.networks.graph import NetworkGraph


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
