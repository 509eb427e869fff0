"""Inception-v4 and Inception-ResNet-v2.

In Inception-v4 only the classifier has a bias, in Inception-ResNet-v2 all layers. Szegedy et al.,
"Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning", 2016.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from spbench_core.layout.window import Pair, expand_pair
from spbench_core.models.compose import add_maps, concat_maps
from spbench_core.models.parts import Map, Mean
from spbench_core.networks.graph import NetworkGraph, same_padding

_Layer = tuple[int, Pair] | tuple[int, Pair, str]
"""Filters and kernel of a convolution, and the kernel in its name if MXNet's name has another."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A module with numbered convolutions."""

    graph: NetworkGraph
    name: str
    numbers: count[int] = field(default_factory=lambda: count(1))

    def tower(self, data: Map, *layers: _Layer, halve: bool = False, shrink: bool = False) -> Map:
        """Add convolutions that keep height and width, possibly except the last one.

        Args:
            data: The input of the first convolution.
            layers: The convolutions.
            halve: Whether the last one halves height and width, without padding.
            shrink: Whether the last one has no padding.
        """
        for number, (filters, kernel, *label) in enumerate(layers, start=1):
            is_last = number == len(layers)
            size_text = _format_kernel(kernel, *label)
            data = self.graph.conv(
                data,
                filters,
                kernel,
                stride=2 if halve and is_last else 1,
                pad=0 if (halve or shrink) and is_last else same_padding(kernel),
                name=f"{self.name}_conv{next(self.numbers)}_{size_text}_conv2d",
            )
        return data

    def pool(self, data: Map) -> Map:
        """Return the output shape of a pool that halves height and width."""
        return self.graph.pool(data, 3, stride=2, name=f"{self.name}_maxpool")

    def pool_tower(self, data: Map, filters: int) -> Map:
        """Add the branch of a module that begins with a pool."""
        pooled_map = self.graph.pool(data, 3, pad=1, name=f"{self.name}_avgpool_1")
        return self.tower(pooled_map, (filters, 1))


def inception_v4(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of Inception-v4.

    Its last pool is 8x8 with a border of one pixel. It turns a map of 8x8 into 3x3, so that the
    classifier has nine weights per channel and class.
    """
    data = _add_stem(_Block(graph, "in_stem"), image)
    for number in range(1, 5):
        data = _add_block_a(_Block(graph, f"in{number}A"), data)
    data = _add_reduction_a(_Block(graph, "re1A"), data)
    for number in range(1, 8):
        data = _add_block_b(_Block(graph, f"in{number}B"), data)
    data = _add_reduction_b(_Block(graph, "re1B"), data)
    for number in range(1, 4):
        data = _add_block_c(_Block(graph, f"in{number}C"), data)
    graph.dense(graph.pool(data, 8, pad=1, name="global_avgpool"), num_classes, name="fc1")


def _add_stem(block: _Block, image: Map) -> Map:
    data = block.tower(image, (32, 3), halve=True)
    data = block.tower(data, (32, 3), shrink=True)
    data = block.tower(data, (64, 3))
    data = concat_maps(block.pool(data), block.tower(data, (96, 3), halve=True))
    data = concat_maps(
        block.tower(data, (64, 1), (96, 3), shrink=True),
        block.tower(data, (64, 1), (64, (7, 1)), (64, (1, 7)), (96, 3), shrink=True),
    )
    return concat_maps(block.tower(data, (192, 3), halve=True), block.pool(data))


def _add_block_a(block: _Block, data: Map) -> Map:
    return concat_maps(
        block.pool_tower(data, 96),
        block.tower(data, (96, 1)),
        block.tower(data, (64, 1), (96, 3)),
        block.tower(data, (64, 1), (96, 3), (96, 3)),
    )


def _add_reduction_a(block: _Block, data: Map) -> Map:
    return concat_maps(
        block.pool(data),
        block.tower(data, (384, 3), halve=True),
        block.tower(data, (192, 1), (224, 3), (256, 3), halve=True),
    )


def _add_block_b(block: _Block, data: Map) -> Map:
    across = (1, 7)
    down = (7, 1)
    twice: tuple[_Layer, ...] = ((192, across), (224, down), (224, across), (256, down))
    return concat_maps(
        block.pool_tower(data, 128),
        block.tower(data, (384, 1)),
        block.tower(data, (192, 1), (224, across), (256, down, "1*7")),
        block.tower(data, (192, 1), *twice),
    )


def _add_reduction_b(block: _Block, data: Map) -> Map:
    return concat_maps(
        block.pool(data),
        block.tower(data, (192, 1), (192, 3), halve=True),
        block.tower(data, (256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3), halve=True),
    )


def _add_block_c(block: _Block, data: Map) -> Map:
    across = (1, 3)
    down = (3, 1)
    pooled_branch = block.pool_tower(data, 256)
    ones_branch = block.tower(data, (256, 1))
    short_tower = block.tower(data, (384, 1))
    short_branches = [
        block.tower(short_tower, (256, across, "3*1")),
        block.tower(short_tower, (256, down, "1*3")),
    ]
    long_tower = block.tower(data, (384, 1), (448, across), (512, down))
    short_branches += [
        block.tower(long_tower, (256, down, "1*3")),
        block.tower(long_tower, (256, across, "3*1")),
    ]
    return concat_maps(pooled_branch, ones_branch, *short_branches)


def _format_kernel(kernel: Pair, label: str = "") -> str:
    height, width = expand_pair(kernel)
    return label or f"{height}*{width}"


_ResidualLayer = tuple[int, Pair] | tuple[int, Pair, Pair]
"""Filters, kernel and padding of a convolution; the default padding is 0."""


def inception_resnet_v2(graph: NetworkGraph, image: Map, num_classes: int) -> None:
    """Add the layers of Inception-ResNet-v2.

    Like in MXNet it has a layer of 129 filters, 1x7 and 7x1 windows with borders that grow the map
    in one direction and shrink it in the other, and 10, 20 and 10 units. Its layers have no names
    there.
    """
    data = _add_residual_first_module(graph, _add_residual_stem(graph, image))
    for _ in range(10):
        data = _add_residual_unit(
            graph, data, [(32, 1)], [(32, 1), (32, 3, 1)], [(32, 1), (48, 3, 1), (64, 3, 1)]
        )
    data = _add_residual_reduction(graph, data, [(384, 3)], [(256, 1), (256, 3, 1), (384, 3)])
    for _ in range(20):
        seven: list[_ResidualLayer] = [(129, 1), (160, (1, 7), (1, 2)), (192, (7, 1), (2, 1))]
        data = _add_residual_unit(graph, data, [(192, 1)], seven)
    data = _add_residual_reduction(
        graph, data, [(256, 1), (384, 3)], [(256, 1), (288, 3)], [(256, 1), (288, 3, 1), (320, 3)]
    )
    for _ in range(10):
        three: list[_ResidualLayer] = [(192, 1), (224, (1, 3), (0, 1)), (256, (3, 1), (1, 0))]
        data = _add_residual_unit(graph, data, [(192, 1)], three)
    data = graph.conv(data, 1536, bias=True)
    graph.dense(Mean().output(data), num_classes)


def _add_residual_stem(graph: NetworkGraph, image: Map) -> Map:
    data = _add_residual_tower(graph, image, [(32, 3)], halve=True)
    data = _add_residual_tower(graph, data, [(32, 3), (64, 3, 1)])
    data = graph.pool(data, 3, stride=2)
    data = _add_residual_tower(graph, data, [(80, 1), (192, 3)])
    return graph.pool(data, 3, stride=2)


def _add_residual_first_module(graph: NetworkGraph, data: Map) -> Map:
    return concat_maps(
        _add_residual_tower(graph, data, [(96, 1)]),
        _add_residual_tower(graph, data, [(48, 1), (64, 5, 2)]),
        _add_residual_tower(graph, data, [(64, 1), (96, 3, 1), (96, 3, 1)]),
        _add_residual_tower(graph, graph.pool(data, 3, pad=1), [(64, 1)]),
    )


def _add_residual_unit(graph: NetworkGraph, data: Map, *towers: list[_ResidualLayer]) -> Map:
    """Add towers, and return the sum of their concatenation and the input."""
    body = concat_maps(*(_add_residual_tower(graph, data, layers) for layers in towers))
    return add_maps(graph.conv(body, data.channels, bias=True), data)


def _add_residual_reduction(graph: NetworkGraph, data: Map, *towers: list[_ResidualLayer]) -> Map:
    """Add towers and a pool that halve height and width."""
    branches = [_add_residual_tower(graph, data, layers, halve=True) for layers in towers]
    return concat_maps(*branches, graph.pool(data, 3, stride=2))


def _add_residual_tower(
    graph: NetworkGraph, data: Map, layers: list[_ResidualLayer], *, halve: bool = False
) -> Map:
    """Add convolutions; with ``halve`` the last one has a stride of 2."""
    for number, (filters, kernel, *pad) in enumerate(layers, start=1):
        stride = 2 if halve and number == len(layers) else 1
        data = graph.conv(data, filters, kernel, stride=stride, pad=pad[0] if pad else 0, bias=True)
    return data
