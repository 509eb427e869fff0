"""Inception-v3; only the classifier has a bias.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015.
"""

from __future__ import annotations

from spbench_core.layout.window import Pair
from spbench_core.models.compose import concat_maps
from spbench_core.models.parts import Map
from spbench_core.networks.graph import NetworkGraph, same_padding

_Layer = tuple[int, Pair]
"""Filters and kernel of a convolution."""


def inception_v3(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of Inception-v3, without its side classifier."""
    data = _add_stem(graph, image)
    for name, pooled in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        data = _mixed_small(graph, data, name, pooled)
    data = concat_maps(
        _tower(graph, data, "mixed_3", (384, 3), halve=True),
        _tower(graph, data, "mixed_3_tower", (64, 1), (96, 3), (96, 3), halve=True),
        graph.pool(data, 3, stride=2, name="max_pool_mixed_3_pool"),
    )
    for name, narrow in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        data = _mixed_long(graph, data, name, narrow)
    seven: tuple[_Layer, ...] = ((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3))
    data = concat_maps(
        _tower(graph, data, "mixed_8_tower", (192, 1), (320, 3), halve=True),
        _tower(graph, data, "mixed_8_tower_1", *seven, halve=True),
        graph.pool(data, 3, stride=2, name="max_pool_mixed_8_pool"),
    )
    data = _mixed_wide(graph, _mixed_wide(graph, data, "mixed_9"), "mixed_10")
    graph.dense(graph.pool(data, 8, name="global_pool"), num_classes, name="fc1")


def _add_stem(graph: NetworkGraph, image: Map) -> Map:
    data = graph.conv(image, 32, 3, stride=2, name="conv_conv2d")
    data = graph.conv(data, 32, 3, name="conv_1_conv2d")
    data = graph.conv(data, 64, 3, pad=1, name="conv_2_conv2d")
    data = graph.pool(data, 3, stride=2, name="pool")
    data = graph.conv(data, 80, name="conv_3_conv2d")
    data = graph.conv(data, 192, 3, name="conv_4_conv2d")
    return graph.pool(data, 3, stride=2, name="pool1")


def _mixed_small(graph: NetworkGraph, data: Map, name: str, pooled: int) -> Map:
    return concat_maps(
        _tower(graph, data, name, (64, 1)),
        _tower(graph, data, f"{name}_tower", (48, 1), (64, 5)),
        _tower(graph, data, f"{name}_tower_1", (64, 1), (96, 3), (96, 3)),
        _pool_tower(graph, data, name, pooled),
    )


def _mixed_long(graph: NetworkGraph, data: Map, name: str, narrow: int) -> Map:
    """Add a module of 7x7 windows, made of 1x7 and 7x1."""
    across = (narrow, (1, 7))
    down = (narrow, (7, 1))
    first = (narrow, 1)
    return concat_maps(
        _tower(graph, data, name, (192, 1)),
        _tower(graph, data, f"{name}_tower", first, across, (192, (7, 1))),
        _tower(graph, data, f"{name}_tower_1", first, down, across, down, (192, (1, 7))),
        _pool_tower(graph, data, name, 192),
    )


def _mixed_wide(graph: NetworkGraph, data: Map, name: str) -> Map:
    """Add a module with towers that end in parallel convolutions of 1x3 and 3x1."""
    return concat_maps(
        _tower(graph, data, name, (320, 1)),
        _split(graph, _tower(graph, data, f"{name}_tower", (384, 1)), f"{name}_tower"),
        _split(
            graph, _tower(graph, data, f"{name}_tower_1", (448, 1), (384, 3)), f"{name}_tower_1"
        ),
        _pool_tower(graph, data, name, 192),
    )


def _split(graph: NetworkGraph, data: Map, name: str) -> Map:
    return concat_maps(
        graph.conv(data, 384, (1, 3), pad=(0, 1), name=f"{name}_mixed_conv_conv2d"),
        graph.conv(data, 384, (3, 1), pad=(1, 0), name=f"{name}_mixed_conv_1_conv2d"),
    )


def _pool_tower(graph: NetworkGraph, data: Map, name: str, filters: int) -> Map:
    pooled = graph.pool(data, 3, pad=1, name=f"{name}_pool")
    return _tower(graph, pooled, f"{name}_tower_2", (filters, 1))


def _tower(graph: NetworkGraph, data: Map, name: str, *layers: _Layer, halve: bool = False) -> Map:
    """Add convolutions that keep the size; with ``halve`` the last halves it."""
    for index, (filters, kernel) in enumerate(layers):
        halves = halve and index == len(layers) - 1
        suffix = f"_{index}" if index else ""
        data = graph.conv(
            data,
            filters,
            kernel,
            stride=2 if halves else 1,
            pad=0 if halves else same_padding(kernel),
            name=f"{name}_conv{suffix}_conv2d",
        )
    return data
