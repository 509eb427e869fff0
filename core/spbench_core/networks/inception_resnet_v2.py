"""Inception-ResNet-v2; its layers have a bias, and no names in MXNet.

Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections on
Learning", 2016. Like in MXNet it has a layer of 129 filters, 1x7 and 7x1 windows with borders that
grow the map in one direction and shrink it in the other, and 10, 20 and 10 units.
"""

from __future__ import annotations

from spbench_core.layout.window import Pair
from spbench_core.models.compose import add_maps, concat_maps
from spbench_core.models.parts import Map, Mean
from spbench_core.networks.graph import NetworkGraph

_Layer = tuple[int, Pair] | tuple[int, Pair, Pair]
"""Filters, kernel and padding of a convolution; the default padding is 0."""


def inception_resnet_v2(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of Inception-ResNet-v2."""
    data = _first_mixed(graph, _stem(graph, image))
    for _ in range(10):
        data = _unit(
            graph, data, [(32, 1)], [(32, 1), (32, 3, 1)], [(32, 1), (48, 3, 1), (64, 3, 1)]
        )
    data = _halve(graph, data, [(384, 3)], [(256, 1), (256, 3, 1), (384, 3)])
    for _ in range(20):
        seven: list[_Layer] = [(129, 1), (160, (1, 7), (1, 2)), (192, (7, 1), (2, 1))]
        data = _unit(graph, data, [(192, 1)], seven)
    data = _halve(
        graph, data, [(256, 1), (384, 3)], [(256, 1), (288, 3)], [(256, 1), (288, 3, 1), (320, 3)]
    )
    for _ in range(10):
        three: list[_Layer] = [(192, 1), (224, (1, 3), (0, 1)), (256, (3, 1), (1, 0))]
        data = _unit(graph, data, [(192, 1)], three)
    data = graph.conv(data, 1536, bias=True)
    graph.dense(Mean().output(data), num_classes)


def _stem(graph: NetworkGraph, image: Map) -> Map:
    data = _tower(graph, image, [(32, 3)], halve=True)
    data = _tower(graph, data, [(32, 3), (64, 3, 1)])
    data = graph.pool(data, 3, stride=2)
    data = _tower(graph, data, [(80, 1), (192, 3)])
    return graph.pool(data, 3, stride=2)


def _first_mixed(graph: NetworkGraph, data: Map) -> Map:
    return concat_maps(
        _tower(graph, data, [(96, 1)]),
        _tower(graph, data, [(48, 1), (64, 5, 2)]),
        _tower(graph, data, [(64, 1), (96, 3, 1), (96, 3, 1)]),
        _tower(graph, graph.pool(data, 3, pad=1), [(64, 1)]),
    )


def _unit(graph: NetworkGraph, data: Map, *towers: list[_Layer]) -> Map:
    """Add towers, and return the sum of their concatenation and the input."""
    body = concat_maps(*(_tower(graph, data, layers) for layers in towers))
    return add_maps(graph.conv(body, data.channels, bias=True), data)


def _halve(graph: NetworkGraph, data: Map, *towers: list[_Layer]) -> Map:
    """Add towers and a pool that halve height and width."""
    branches = [_tower(graph, data, layers, halve=True) for layers in towers]
    return concat_maps(*branches, graph.pool(data, 3, stride=2))


def _tower(graph: NetworkGraph, data: Map, layers: list[_Layer], *, halve: bool = False) -> Map:
    """Add convolutions; with ``halve`` the last one has a stride of 2."""
    for number, (filters, kernel, *pad) in enumerate(layers, start=1):
        stride = 2 if halve and number == len(layers) else 1
        data = graph.conv(data, filters, kernel, stride=stride, pad=pad[0] if pad else 0, bias=True)
    return data
