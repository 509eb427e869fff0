"""Inception-v3; only the classifier has a bias.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015.
"""

from __future__ import annotations

from spbench_core.layout.window import Pair
from spbench_core.models.compose import concat_shapes
from spbench_core.models.parts import MapShape
from spbench_core.mxnet_networks.graph import ParameterCollector, compute_same_padding

_Layer = tuple[int, Pair]
"""Filters and kernel of a convolution."""


def inception_v3(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of Inception-v3, without its side classifier."""
    shape = _add_stem(graph, image)
    for name, pooled in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        shape = _add_small_module(graph, shape, name, pooled)
    shape = concat_shapes(
        _add_tower(graph, shape, "mixed_3", (384, 3), halve=True),
        _add_tower(graph, shape, "mixed_3_tower", (64, 1), (96, 3), (96, 3), halve=True),
        graph.pool(shape, 3, stride=2, name="max_pool_mixed_3_pool"),
    )
    for name, narrow in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        shape = _add_long_module(graph, shape, name, narrow)
    seven: tuple[_Layer, ...] = ((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3))
    shape = concat_shapes(
        _add_tower(graph, shape, "mixed_8_tower", (192, 1), (320, 3), halve=True),
        _add_tower(graph, shape, "mixed_8_tower_1", *seven, halve=True),
        graph.pool(shape, 3, stride=2, name="max_pool_mixed_8_pool"),
    )
    shape = _add_wide_module(graph, _add_wide_module(graph, shape, "mixed_9"), "mixed_10")
    graph.dense(graph.pool(shape, 8, name="global_pool"), num_classes, name="fc1")


def _add_stem(graph: ParameterCollector, image: MapShape) -> MapShape:
    shape = graph.conv(image, 32, 3, stride=2, name="conv_conv2d")
    shape = graph.conv(shape, 32, 3, name="conv_1_conv2d")
    shape = graph.conv(shape, 64, 3, pad=1, name="conv_2_conv2d")
    shape = graph.pool(shape, 3, stride=2, name="pool")
    shape = graph.conv(shape, 80, name="conv_3_conv2d")
    shape = graph.conv(shape, 192, 3, name="conv_4_conv2d")
    return graph.pool(shape, 3, stride=2, name="pool1")


def _add_small_module(
    graph: ParameterCollector, shape: MapShape, name: str, pooled: int
) -> MapShape:
    return concat_shapes(
        _add_tower(graph, shape, name, (64, 1)),
        _add_tower(graph, shape, f"{name}_tower", (48, 1), (64, 5)),
        _add_tower(graph, shape, f"{name}_tower_1", (64, 1), (96, 3), (96, 3)),
        _add_pool_tower(graph, shape, name, pooled),
    )


def _add_long_module(
    graph: ParameterCollector, shape: MapShape, name: str, narrow: int
) -> MapShape:
    """Add a module of 7x7 windows, made of 1x7 and 7x1."""
    across = (narrow, (1, 7))
    down = (narrow, (7, 1))
    first = (narrow, 1)
    return concat_shapes(
        _add_tower(graph, shape, name, (192, 1)),
        _add_tower(graph, shape, f"{name}_tower", first, across, (192, (7, 1))),
        _add_tower(graph, shape, f"{name}_tower_1", first, down, across, down, (192, (1, 7))),
        _add_pool_tower(graph, shape, name, 192),
    )


def _add_wide_module(graph: ParameterCollector, shape: MapShape, name: str) -> MapShape:
    """Add a module with towers that end in parallel convolutions of 1x3 and 3x1."""
    return concat_shapes(
        _add_tower(graph, shape, name, (320, 1)),
        _add_split(graph, _add_tower(graph, shape, f"{name}_tower", (384, 1)), f"{name}_tower"),
        _add_split(
            graph,
            _add_tower(graph, shape, f"{name}_tower_1", (448, 1), (384, 3)),
            f"{name}_tower_1",
        ),
        _add_pool_tower(graph, shape, name, 192),
    )


def _add_split(graph: ParameterCollector, shape: MapShape, name: str) -> MapShape:
    return concat_shapes(
        graph.conv(shape, 384, (1, 3), pad=(0, 1), name=f"{name}_mixed_conv_conv2d"),
        graph.conv(shape, 384, (3, 1), pad=(1, 0), name=f"{name}_mixed_conv_1_conv2d"),
    )


def _add_pool_tower(
    graph: ParameterCollector, shape: MapShape, name: str, filters: int
) -> MapShape:
    pooled = graph.pool(shape, 3, pad=1, name=f"{name}_pool")
    return _add_tower(graph, pooled, f"{name}_tower_2", (filters, 1))


def _add_tower(
    graph: ParameterCollector, shape: MapShape, name: str, *layers: _Layer, halve: bool = False
) -> MapShape:
    """Add convolutions that keep the size; with ``halve`` the last halves it."""
    for index, (filters, kernel) in enumerate(layers):
        halves = halve and index == len(layers) - 1
        suffix = f"_{index}" if index else ""
        shape = graph.conv(
            shape,
            filters,
            kernel,
            stride=2 if halves else 1,
            pad=0 if halves else compute_same_padding(kernel),
            name=f"{name}_conv{suffix}_conv2d",
        )
    return shape
