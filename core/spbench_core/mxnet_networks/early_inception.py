"""The first Inception networks: GoogLeNet and Inception-BN.

All layers have a bias: in MXNet, Inception-BN keeps those of its convolutions.
"""

from __future__ import annotations

from typing import NamedTuple

from spbench_core.models.compose import concat_shapes
from spbench_core.models.parts import MapShape, Mean
from spbench_core.mxnet_networks.graph import ParameterCollector


class _GoogLeNetModule(NamedTuple):
    """The filters of a module of GoogLeNet.

    Attributes:
        name: Its name in MXNet.
        ones: Filters of the 1x1 convolution.
        threes_reduced: Filters of the 1x1 convolution before the 3x3 one.
        threes: Filters of the 3x3 convolution.
        fives_reduced: Filters of the 1x1 convolution before the 5x5 one.
        fives: Filters of the 5x5 convolution.
        pooled: Filters of the 1x1 convolution after the pool.
    """

    name: str
    ones: int
    threes_reduced: int
    threes: int
    fives_reduced: int
    fives: int
    pooled: int


_GOOGLENET_STAGES = (
    (
        _GoogLeNetModule("in3a", 64, 96, 128, 16, 32, 32),
        _GoogLeNetModule("in3b", 128, 128, 192, 32, 96, 64),
    ),
    (
        _GoogLeNetModule("in4a", 192, 96, 208, 16, 48, 64),
        _GoogLeNetModule("in4b", 160, 112, 224, 24, 64, 64),
        _GoogLeNetModule("in4c", 128, 128, 256, 24, 64, 64),
        _GoogLeNetModule("in4d", 112, 144, 288, 32, 64, 64),
        _GoogLeNetModule("in4e", 256, 160, 320, 32, 128, 128),
    ),
    (
        _GoogLeNetModule("in5a", 256, 160, 320, 32, 128, 128),
        _GoogLeNetModule("in5b", 384, 192, 384, 48, 128, 128),
    ),
)


def googlenet(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of GoogLeNet, without its auxiliary classifiers.

    Szegedy et al., "Going Deeper with Convolutions", 2014.
    """
    shape = graph.conv(image, 64, 7, stride=2, pad=3, bias=True, name="conv_conv1")
    shape = graph.pool(shape, 3, stride=2)
    shape = graph.conv(shape, 64, bias=True, name="conv_conv2")
    shape = graph.conv(shape, 192, 3, pad=1, bias=True, name="conv_conv3")
    for stage in _GOOGLENET_STAGES:
        shape = graph.pool(shape, 3, stride=2)
        for module in stage:
            shape = _add_googlenet_module(graph, shape, module)
    graph.dense(Mean().output(shape), num_classes)


def _add_googlenet_module(
    graph: ParameterCollector, shape: MapShape, module: _GoogLeNetModule
) -> MapShape:
    name = f"conv_{module.name}"
    ones_branch = graph.conv(shape, module.ones, bias=True, name=f"{name}_1x1")
    threes_branch = graph.conv(shape, module.threes_reduced, bias=True, name=f"{name}_3x3_reduce")
    threes_branch = graph.conv(
        threes_branch, module.threes, 3, pad=1, bias=True, name=f"{name}_3x3"
    )
    fives_branch = graph.conv(shape, module.fives_reduced, bias=True, name=f"{name}_5x5_reduce")
    fives_branch = graph.conv(fives_branch, module.fives, 5, pad=2, bias=True, name=f"{name}_5x5")
    pooled_branch = graph.pool(shape, 3, pad=1, name=f"max_pool_{name}_pool")
    pooled_branch = graph.conv(pooled_branch, module.pooled, bias=True, name=f"{name}_proj")
    return concat_shapes(ones_branch, threes_branch, fives_branch, pooled_branch)


class _BnModule(NamedTuple):
    """The filters of a module of Inception-BN; one with 0 ``ones`` halves the map.

    Attributes:
        name: Its name in MXNet.
        ones: Filters of the 1x1 convolution; 0: there is none.
        threes_reduced: Filters of the 1x1 convolution before the 3x3 one.
        threes: Filters of the 3x3 convolution.
        pairs_reduced: Filters of the 1x1 convolution before the two 3x3 ones.
        pairs: Filters of each of the two 3x3 convolutions.
        pooled: Filters of the 1x1 convolution after the pool; 0: there is none.
    """

    name: str
    ones: int
    threes_reduced: int
    threes: int
    pairs_reduced: int
    pairs: int
    pooled: int


_BN_MODULES = (
    _BnModule("3a", 64, 64, 64, 64, 96, 32),
    _BnModule("3b", 64, 64, 96, 64, 96, 64),
    _BnModule("3c", 0, 128, 160, 64, 96, 0),
    _BnModule("4a", 224, 64, 96, 96, 128, 128),
    _BnModule("4b", 192, 96, 128, 96, 128, 128),
    _BnModule("4c", 160, 128, 160, 128, 160, 128),
    _BnModule("4d", 96, 128, 192, 160, 192, 128),
    _BnModule("4e", 0, 128, 192, 192, 256, 0),
    _BnModule("5a", 352, 192, 320, 160, 224, 128),
    _BnModule("5b", 352, 192, 320, 192, 224, 128),
)
_SMALL_BN_MODULES = (
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
_SMALL_BN_HEIGHT = 28
"""The greatest image height for which MXNet has a smaller network."""


def inception_bn(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of Inception-BN.

    Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", 2015. Its last pool is 7x7, for an image of 224x224. With a larger image it
    leaves more than one value per channel, and the classifier grows.
    """
    if image.height <= _SMALL_BN_HEIGHT:
        shape = graph.conv(image, 96, 3, pad=1, bias=True, name="conv_1")
        for name, ones, threes in _SMALL_BN_MODULES:
            shape = _add_small_bn_module(graph, shape, f"conv_{name}", ones, threes)
    else:
        shape = _add_bn_stem(graph, image)
        for module in _BN_MODULES:
            shape = _add_bn_module(graph, shape, module)
    graph.dense(graph.pool(shape, 7, name="global_pool"), num_classes)


def _add_bn_stem(graph: ParameterCollector, image: MapShape) -> MapShape:
    shape = graph.conv(image, 64, 7, stride=2, pad=3, bias=True, name="conv_1")
    shape = graph.pool(shape, 3, stride=2, name="pool_1")
    shape = graph.conv(shape, 64, bias=True, name="conv_2_red")
    shape = graph.conv(shape, 192, 3, pad=1, bias=True, name="conv_2")
    return graph.pool(shape, 3, stride=2, name="pool_2")


def _add_small_bn_module(
    graph: ParameterCollector, shape: MapShape, name: str, ones: int, threes: int
) -> MapShape:
    if not ones:
        halved_branch = graph.conv(
            shape, threes, 3, stride=2, pad=1, bias=True, name=f"{name}_conv"
        )
        return concat_shapes(
            halved_branch, graph.pool(shape, 3, stride=2, pad=1, name=f"{name}_pool")
        )
    ones_branch = graph.conv(shape, ones, bias=True, name=f"{name}_1x1")
    threes_branch = graph.conv(shape, threes, 3, pad=1, bias=True, name=f"{name}_3x3")
    return concat_shapes(ones_branch, threes_branch)


def _add_bn_module(graph: ParameterCollector, shape: MapShape, module: _BnModule) -> MapShape:
    name = f"conv_{module.name}"
    stride = 1 if module.ones else 2
    branches = []
    if module.ones:
        branches.append(graph.conv(shape, module.ones, bias=True, name=f"{name}_1x1"))
    three_branch = graph.conv(shape, module.threes_reduced, bias=True, name=f"{name}_3x3_reduce")
    three_branch = graph.conv(
        three_branch, module.threes, 3, stride=stride, pad=1, bias=True, name=f"{name}_3x3"
    )
    pair_name = f"{name}_double_3x3"
    pair_branch = graph.conv(shape, module.pairs_reduced, bias=True, name=f"{pair_name}_reduce")
    pair_branch = graph.conv(pair_branch, module.pairs, 3, pad=1, bias=True, name=f"{pair_name}_0")
    pair_branch = graph.conv(
        pair_branch, module.pairs, 3, stride=stride, pad=1, bias=True, name=f"{pair_name}_1"
    )
    pooled_branch = graph.pool(shape, 3, stride=stride, pad=1, name=f"{name}_pool")
    if module.pooled:
        pooled_branch = graph.conv(pooled_branch, module.pooled, bias=True, name=f"{name}_proj")
    return concat_shapes(*branches, three_branch, pair_branch, pooled_branch)
