"""Networks for images of digits: LeNet, and a perceptron. All layers have a bias.

LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998.
"""

from __future__ import annotations

from spbench_core.models.parts import Map
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
