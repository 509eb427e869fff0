"""VGG; all layers have a bias.

Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014.
"""

from __future__ import annotations

from spbench_core.models.parts import Map
from spbench_core.networks.graph import NetworkGraph

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
