"""Inception-v4 and Inception-ResNet-v2.

In Inception-v4 only the classifier has a bias, in Inception-ResNet-v2 all layers. Szegedy et al.,
"Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning", 2016.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from spbench_core.layout.window import Pair, expand_pair
from spbench_core.models.compose import concat_shapes, require_equal_shapes
from spbench_core.models.parts import MapShape, Mean
from spbench_core.mxnet_networks.graph import ParameterCollector, compute_same_padding

_Layer = tuple[int, Pair] | tuple[int, Pair, str]
"""Filters and kernel of a convolution, and the kernel in its name if MXNet's name has another."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A module with numbered convolutions."""

    graph: ParameterCollector
    name: str
    numbers: count[int] = field(default_factory=lambda: count(1))

    def tower(
        self, shape: MapShape, *layers: _Layer, halve: bool = False, shrink: bool = False
    ) -> MapShape:
        """Add convolutions that keep height and width, possibly except the last one.

        Args:
            shape: The input of the first convolution.
            layers: The convolutions.
            halve: Whether the last one halves height and width, without padding.
            shrink: Whether the last one has no padding.
        """
        for number, (filters, kernel, *label) in enumerate(layers, start=1):
            is_last = number == len(layers)
            size_text = _format_kernel(kernel, *label)
            shape = self.graph.conv(
                shape,
                filters,
                kernel,
                stride=2 if halve and is_last else 1,
                pad=0 if (halve or shrink) and is_last else compute_same_padding(kernel),
                name=f"{self.name}_conv{next(self.numbers)}_{size_text}_conv2d",
            )
        return shape

    def pool(self, shape: MapShape) -> MapShape:
        """Return the output shape of a pool that halves height and width."""
        return self.graph.pool(shape, 3, stride=2, name=f"{self.name}_maxpool")

    def pool_tower(self, shape: MapShape, filters: int) -> MapShape:
        """Add the branch of a module that begins with a pool."""
        pooled_map = self.graph.pool(shape, 3, pad=1, name=f"{self.name}_avgpool_1")
        return self.tower(pooled_map, (filters, 1))


def inception_v4(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of Inception-v4.

    Its last pool is 8x8 with a border of one pixel. It turns a map of 8x8 into 3x3, so that the
    classifier has nine weights per channel and class.
    """
    shape = _add_stem(_Block(graph, "in_stem"), image)
    for number in range(1, 5):
        shape = _add_block_a(_Block(graph, f"in{number}A"), shape)
    shape = _add_reduction_a(_Block(graph, "re1A"), shape)
    for number in range(1, 8):
        shape = _add_block_b(_Block(graph, f"in{number}B"), shape)
    shape = _add_reduction_b(_Block(graph, "re1B"), shape)
    for number in range(1, 4):
        shape = _add_block_c(_Block(graph, f"in{number}C"), shape)
    graph.dense(graph.pool(shape, 8, pad=1, name="global_avgpool"), num_classes, name="fc1")


def _add_stem(block: _Block, image: MapShape) -> MapShape:
    shape = block.tower(image, (32, 3), halve=True)
    shape = block.tower(shape, (32, 3), shrink=True)
    shape = block.tower(shape, (64, 3))
    shape = concat_shapes(block.pool(shape), block.tower(shape, (96, 3), halve=True))
    shape = concat_shapes(
        block.tower(shape, (64, 1), (96, 3), shrink=True),
        block.tower(shape, (64, 1), (64, (7, 1)), (64, (1, 7)), (96, 3), shrink=True),
    )
    return concat_shapes(block.tower(shape, (192, 3), halve=True), block.pool(shape))


def _add_block_a(block: _Block, shape: MapShape) -> MapShape:
    return concat_shapes(
        block.pool_tower(shape, 96),
        block.tower(shape, (96, 1)),
        block.tower(shape, (64, 1), (96, 3)),
        block.tower(shape, (64, 1), (96, 3), (96, 3)),
    )


def _add_reduction_a(block: _Block, shape: MapShape) -> MapShape:
    return concat_shapes(
        block.pool(shape),
        block.tower(shape, (384, 3), halve=True),
        block.tower(shape, (192, 1), (224, 3), (256, 3), halve=True),
    )


def _add_block_b(block: _Block, shape: MapShape) -> MapShape:
    across = (1, 7)
    down = (7, 1)
    twice: tuple[_Layer, ...] = ((192, across), (224, down), (224, across), (256, down))
    return concat_shapes(
        block.pool_tower(shape, 128),
        block.tower(shape, (384, 1)),
        block.tower(shape, (192, 1), (224, across), (256, down, "1*7")),
        block.tower(shape, (192, 1), *twice),
    )


def _add_reduction_b(block: _Block, shape: MapShape) -> MapShape:
    return concat_shapes(
        block.pool(shape),
        block.tower(shape, (192, 1), (192, 3), halve=True),
        block.tower(shape, (256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3), halve=True),
    )


def _add_block_c(block: _Block, shape: MapShape) -> MapShape:
    across = (1, 3)
    down = (3, 1)
    pooled_branch = block.pool_tower(shape, 256)
    ones_branch = block.tower(shape, (256, 1))
    short_tower = block.tower(shape, (384, 1))
    short_branches = [
        block.tower(short_tower, (256, across, "3*1")),
        block.tower(short_tower, (256, down, "1*3")),
    ]
    long_tower = block.tower(shape, (384, 1), (448, across), (512, down))
    short_branches += [
        block.tower(long_tower, (256, down, "1*3")),
        block.tower(long_tower, (256, across, "3*1")),
    ]
    return concat_shapes(pooled_branch, ones_branch, *short_branches)


def _format_kernel(kernel: Pair, label: str = "") -> str:
    height, width = expand_pair(kernel)
    return label or f"{height}*{width}"


_ResidualLayer = tuple[int, Pair] | tuple[int, Pair, Pair]
"""Filters, kernel and padding of a convolution; the default padding is 0."""


def inception_resnet_v2(graph: ParameterCollector, image: MapShape, num_classes: int) -> None:
    """Add the layers of Inception-ResNet-v2.

    Like in MXNet it has a layer of 129 filters, 1x7 and 7x1 windows with borders that grow the map
    in one direction and shrink it in the other, and 10, 20 and 10 units. Its layers have no names
    there.
    """
    shape = _add_residual_first_module(graph, _add_residual_stem(graph, image))
    for _ in range(10):
        shape = _add_residual_unit(
            graph, shape, [(32, 1)], [(32, 1), (32, 3, 1)], [(32, 1), (48, 3, 1), (64, 3, 1)]
        )
    shape = _add_residual_reduction(graph, shape, [(384, 3)], [(256, 1), (256, 3, 1), (384, 3)])
    for _ in range(20):
        seven: list[_ResidualLayer] = [(129, 1), (160, (1, 7), (1, 2)), (192, (7, 1), (2, 1))]
        shape = _add_residual_unit(graph, shape, [(192, 1)], seven)
    shape = _add_residual_reduction(
        graph, shape, [(256, 1), (384, 3)], [(256, 1), (288, 3)], [(256, 1), (288, 3, 1), (320, 3)]
    )
    for _ in range(10):
        three: list[_ResidualLayer] = [(192, 1), (224, (1, 3), (0, 1)), (256, (3, 1), (1, 0))]
        shape = _add_residual_unit(graph, shape, [(192, 1)], three)
    shape = graph.conv(shape, 1536, bias=True)
    graph.dense(Mean().output(shape), num_classes)


def _add_residual_stem(graph: ParameterCollector, image: MapShape) -> MapShape:
    shape = _add_residual_tower(graph, image, [(32, 3)], halve=True)
    shape = _add_residual_tower(graph, shape, [(32, 3), (64, 3, 1)])
    shape = graph.pool(shape, 3, stride=2)
    shape = _add_residual_tower(graph, shape, [(80, 1), (192, 3)])
    return graph.pool(shape, 3, stride=2)


def _add_residual_first_module(graph: ParameterCollector, shape: MapShape) -> MapShape:
    return concat_shapes(
        _add_residual_tower(graph, shape, [(96, 1)]),
        _add_residual_tower(graph, shape, [(48, 1), (64, 5, 2)]),
        _add_residual_tower(graph, shape, [(64, 1), (96, 3, 1), (96, 3, 1)]),
        _add_residual_tower(graph, graph.pool(shape, 3, pad=1), [(64, 1)]),
    )


def _add_residual_unit(
    graph: ParameterCollector, shape: MapShape, *towers: list[_ResidualLayer]
) -> MapShape:
    """Add towers, and return the sum of their concatenation and the input."""
    body = concat_shapes(*(_add_residual_tower(graph, shape, layers) for layers in towers))
    return require_equal_shapes(graph.conv(body, shape.channels, bias=True), shape)


def _add_residual_reduction(
    graph: ParameterCollector, shape: MapShape, *towers: list[_ResidualLayer]
) -> MapShape:
    """Add towers and a pool that halve height and width."""
    branches = [_add_residual_tower(graph, shape, layers, halve=True) for layers in towers]
    return concat_shapes(*branches, graph.pool(shape, 3, stride=2))


def _add_residual_tower(
    graph: ParameterCollector, shape: MapShape, layers: list[_ResidualLayer], *, halve: bool = False
) -> MapShape:
    """Add convolutions; with ``halve`` the last one has a stride of 2."""
    for number, (filters, kernel, *pad) in enumerate(layers, start=1):
        stride = 2 if halve and number == len(layers) else 1
        shape = graph.conv(
            shape, filters, kernel, stride=stride, pad=pad[0] if pad else 0, bias=True
        )
    return shape
