"""GoogLeNet; all layers have a bias.

Szegedy et al., "Going Deeper with Convolutions", 2014.
"""

from __future__ import annotations

from spbench_core.models.compose import concat_maps
from spbench_core.models.parts import Map, Mean
from spbench_core.networks.graph import NetworkGraph

_Mixed = tuple[str, int, int, int, int, int, int]
"""The name of a module, and its filters: 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, after pool."""
_STAGES: tuple[tuple[_Mixed, ...], ...] = (
    (
        ("in3a", 64, 96, 128, 16, 32, 32),
        ("in3b", 128, 128, 192, 32, 96, 64),
    ),
    (
        ("in4a", 192, 96, 208, 16, 48, 64),
        ("in4b", 160, 112, 224, 24, 64, 64),
        ("in4c", 128, 128, 256, 24, 64, 64),
        ("in4d", 112, 144, 288, 32, 64, 64),
        ("in4e", 256, 160, 320, 32, 128, 128),
    ),
    (
        ("in5a", 256, 160, 320, 32, 128, 128),
        ("in5b", 384, 192, 384, 48, 128, 128),
    ),
)


def googlenet(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of GoogLeNet, without its auxiliary classifiers."""
    data = graph.conv(image, 64, 7, stride=2, pad=3, bias=True, name="conv_conv1")
    data = graph.pool(data, 3, stride=2)
    data = graph.conv(data, 64, bias=True, name="conv_conv2")
    data = graph.conv(data, 192, 3, pad=1, bias=True, name="conv_conv3")
    for stage in _STAGES:
        data = graph.pool(data, 3, stride=2)
        for module in stage:
            data = _mixed_module(graph, data, module)
    graph.dense(Mean().output(data), num_classes)


def _mixed_module(graph: NetworkGraph, data: Map, module: _Mixed) -> Map:
    name, n1, n3_in, n3, n5_in, n5, n0 = module
    name = f"conv_{name}"
    ones = graph.conv(data, n1, bias=True, name=f"{name}_1x1")
    threes = graph.conv(data, n3_in, bias=True, name=f"{name}_3x3_reduce")
    threes = graph.conv(threes, n3, 3, pad=1, bias=True, name=f"{name}_3x3")
    fives = graph.conv(data, n5_in, bias=True, name=f"{name}_5x5_reduce")
    fives = graph.conv(fives, n5, 5, pad=2, bias=True, name=f"{name}_5x5")
    pooled = graph.pool(data, 3, pad=1, name=f"max_pool_{name}_pool")
    return concat_maps(ones, threes, fives, graph.conv(pooled, n0, bias=True, name=f"{name}_proj"))
