"""Inception with batch normalization; its convolutions keep their bias in MXNet.

Ioffe and Szegedy, "Batch Normalization", 2015. For images of up to 28 pixels in height MXNet has a
smaller network.
"""

from __future__ import annotations

from spbench_core.models.compose import concat_maps
from spbench_core.models.parts import Map
from spbench_core.networks.graph import NetworkGraph

SMALL = 28
"""The greatest image height for the smaller network."""
_SMALL_LAYERS = (
    ("in3a", 32, 32),
    ("in3b", 32, 48),
    ("in3c", 0, 80),
    ("in4a", 112, 48),
    ("in4b", 96, 64),
    ("in4c", 80, 80),
    ("in4d", 48, 96),
    ("in4e", 0, 96),
    ("in5a", 176, 160),
    ("in5b", 176, 160),
)
"""The name of a module, and its filters: 1x1 (0: the module halves the map) and 3x3."""
_Mixed = tuple[str, int, int, int, int, int, int]
_LAYERS: tuple[_Mixed, ...] = (
    ("3a", 64, 64, 64, 64, 96, 32),
    ("3b", 64, 64, 96, 64, 96, 64),
    ("3c", 0, 128, 160, 64, 96, 0),
    ("4a", 224, 64, 96, 96, 128, 128),
    ("4b", 192, 96, 128, 96, 128, 128),
    ("4c", 160, 128, 160, 128, 160, 128),
    ("4d", 96, 128, 192, 160, 192, 128),
    ("4e", 0, 128, 192, 192, 256, 0),
    ("5a", 352, 192, 320, 160, 224, 128),
    ("5b", 352, 192, 320, 192, 224, 128),
)
"""The name of a module, and its filters: 1x1, 3x3 reduced, 3x3, twice 3x3 reduced, twice 3x3, and
after the pool. A module with 0 for the first and the last has neither, and halves the map.
"""


def inception_bn(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of Inception-BN.

    Its last pool is 7x7, for an image of 224x224. With a larger image it leaves more than one value
    per channel, and the classifier grows.
    """
    if image.height <= SMALL:
        data = graph.conv(image, 96, 3, pad=1, bias=True, name="conv_1")
        for name, ones, threes in _SMALL_LAYERS:
            data = _small_mixed(graph, data, f"conv_{name}", ones, threes)
    else:
        data = _stem(graph, image)
        for module in _LAYERS:
            data = _mixed_module(graph, data, module)
    graph.dense(graph.pool(data, 7, name="global_pool"), num_classes)


def _stem(graph: NetworkGraph, image: Map) -> Map:
    data = graph.conv(image, 64, 7, stride=2, pad=3, bias=True, name="conv_1")
    data = graph.pool(data, 3, stride=2, name="pool_1")
    data = graph.conv(data, 64, bias=True, name="conv_2_red")
    data = graph.conv(data, 192, 3, pad=1, bias=True, name="conv_2")
    return graph.pool(data, 3, stride=2, name="pool_2")


def _small_mixed(graph: NetworkGraph, data: Map, name: str, ones: int, threes: int) -> Map:
    if not ones:
        halved = graph.conv(data, threes, 3, stride=2, pad=1, bias=True, name=f"{name}_conv")
        return concat_maps(halved, graph.pool(data, 3, stride=2, pad=1, name=f"{name}_pool"))
    first = graph.conv(data, ones, bias=True, name=f"{name}_1x1")
    second = graph.conv(data, threes, 3, pad=1, bias=True, name=f"{name}_3x3")
    return concat_maps(first, second)


def _mixed_module(graph: NetworkGraph, data: Map, module: _Mixed) -> Map:
    name, n1, n3_in, n3, n33_in, n33, n0 = module
    name = f"conv_{name}"
    stride = 1 if n1 else 2
    branches = []
    if n1:
        branches.append(graph.conv(data, n1, bias=True, name=f"{name}_1x1"))
    three = graph.conv(data, n3_in, bias=True, name=f"{name}_3x3_reduce")
    three = graph.conv(three, n3, 3, stride=stride, pad=1, bias=True, name=f"{name}_3x3")
    twice = graph.conv(data, n33_in, bias=True, name=f"{name}_double_3x3_reduce")
    twice = graph.conv(twice, n33, 3, pad=1, bias=True, name=f"{name}_double_3x3_0")
    twice = graph.conv(twice, n33, 3, stride=stride, pad=1, bias=True, name=f"{name}_double_3x3_1")
    pooled = graph.pool(data, 3, stride=stride, pad=1, name=f"{name}_pool")
    if n0:
        pooled = graph.conv(pooled, n0, bias=True, name=f"{name}_proj")
    return concat_maps(*branches, three, twice, pooled)
