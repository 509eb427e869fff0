"""A piece of an imported network over tiles: a module of a rank that has one tile of each map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from torch import fx, nn

from spbench_core.layout.tiles import Grid
from spbench_workers.errors import CannotRunError
from spbench_workers.models.imported.graph import where
from spbench_workers.models.imported.model import (
    ImportedPiece,
    copied,
    drop_of,
    with_map_outputs,
    with_shape,
)
from spbench_workers.models.imported.operators import TileWay, in_tiles, module_of, ways_of
from spbench_workers.models.imported.tracing import Operator, Traced, attribute
from spbench_workers.spatial.all_gather import AllGather
from spbench_workers.spatial.conv import SpatialConv2d
from spbench_workers.spatial.global_pool import SpatialGlobalAvgPool2d
from spbench_workers.spatial.group_norm import SpatialGroupNorm
from spbench_workers.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_workers.spatial.replicated import BesideTiles, OwnTile
from spbench_workers.spatial.tiling import Tiling

NormOf = Callable[[nn.BatchNorm2d, Tiling], nn.Module]
"""Returns the batch normalisation over tiles in the place of one of whole images."""


def over_tiles(piece: ImportedPiece, tiling: Tiling, norm_of: NormOf) -> fx.GraphModule:
    """Return a new module of a piece for a rank that has one tile of each map.

    Args:
        piece: The piece.
        tiling: The tiles of the image; each map is cut as it is.
        norm_of: Makes batch normalisation.

    Raises:
        CannotRunError: A map has fewer pixels than there are tiles, or an operator over tiles is
            used twice.
    """
    return _Building(piece, tiling, norm_of).module()


def gathered(network: Traced, grids: Iterable[Grid]) -> list[fx.Node]:
    """Return the operators that are computed on gathered maps where images are in such tiles."""
    found: dict[fx.Node, None] = {}
    for grid in grids:
        ways = ways_of(network, grid).items()
        found |= {node: None for node, way in ways if way is TileWay.GATHERED}
    return [each.node for each in network.operators if each.node in found]


def gathered_values(network: Traced, nodes: Iterable[fx.Node]) -> int:
    """Return how many numbers of one image are gathered for such operators, on every rank."""
    sources = {one: None for node in nodes for one in node.all_input_nodes}
    return sum(prod(network.shapes[one]) for one in sources if in_tiles(network, one))


def same_over_tiles(small: Traced, whole: Traced, grid: Grid) -> bool:
    """Return whether a network at a smaller size is over tiles what it is at another.

    Each operator is computed in the same way, and each tile has the pixels that its neighbours
    read, as far as it has them in the larger image.
    """
    ways, others = (ways_of(each, grid).values() for each in (small, whole))
    if list(ways) != list(others):
        return False
    pairs = zip(small.operators, whole.operators, strict=True)
    return all(_has_halos(small, one.node, whole, other.node, grid) for one, other in pairs)


def _has_halos(small: Traced, one: fx.Node, whole: Traced, other: fx.Node, grid: Grid) -> bool:
    sources = [node for node in one.all_input_nodes if in_tiles(small, node)]
    larger = [node for node in other.all_input_nodes if in_tiles(whole, node)]
    if len(sources) != len(larger):
        return False
    reach = _reach(module_of(small, one))
    tiles = grid.rows, grid.cols
    return all(
        have // parts >= max(1, min(beyond, had // parts))
        for mine, theirs in zip(sources, larger, strict=True)
        for have, had, parts, beyond in zip(
            small.shapes[mine][1:], whole.shapes[theirs][1:], tiles, reach, strict=True
        )
    )


def _reach(module: nn.Module | None) -> tuple[int, int]:
    """Return how many rows and columns an operator may read beyond a tile."""
    if not isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
        return 0, 0
    kernel, dilation = _pair(module.kernel_size), _pair(getattr(module, "dilation", 1))
    return (kernel[0] - 1) * dilation[0], (kernel[1] - 1) * dilation[1]


class _Building:
    """The building of one piece: its graph, and the modules that the graph calls."""

    def __init__(self, piece: ImportedPiece, tiling: Tiling, norm_of: NormOf) -> None:
        self._piece, self._tiling, self._norm_of = piece, tiling, norm_of
        self._network = piece.network
        self._ways = ways_of(piece.network, tiling.partition.grid, piece.operators)
        self._graph, self._root = fx.Graph(), dict[str, Any]()
        self._made: dict[fx.Node, fx.Node] = {}
        self._whole: dict[fx.Node, fx.Node] = {}

    def module(self) -> fx.GraphModule:
        span = self._piece.span
        self._made.update(with_shape(self._graph, self._network, span.inputs))
        for each in self._piece.operators:
            self._made[each.node] = self._operator(each)
        with_map_outputs(self._graph, self._network, span, self._made)
        return fx.GraphModule(self._root, self._graph, class_name="TiledPiece")

    def _operator(self, each: Operator) -> fx.Node:
        node, way = each.node, self._ways[each.node]
        if node in self._network.chance:
            return self._dropped(node)
        if way is TileWay.NUMBER:
            return self._number(each)
        if way is TileWay.TILES:
            path = str(node.target) if node.op == "call_module" else f"{node.name}_over_tiles"
            if path in self._root:
                raise CannotRunError(
                    f"network {self._network.name}: {where(node)} is used twice, which cannot be "
                    "over tiles; take scheme lp"
                )
            self._root[path] = self._counterpart(node)
            return self._graph.call_module(path, (self._made[node.all_input_nodes[0]],))
        if way is TileWay.MEAN:
            return self._mean(node, each)
        if way is TileWay.GATHERED:
            return self._cut(node, self._copied(node, self._gathered_inputs(node)))
        made = self._copied(node, {one: self._beside(one, way) for one in node.all_input_nodes})
        return self._cut(node, made) if way is TileWay.WHOLE else made

    def _dropped(self, node: fx.Node) -> fx.Node:
        """Return what an operator of chance leaves: of a map in tiles, of this rank's."""
        source = node.all_input_nodes[0]
        box = self._tiling_of(source).tile if in_tiles(self._network, source) else None
        drop = drop_of(self._network, node, box)
        return self._call("dropped", node, drop, self._made[source])

    def _copied(self, node: fx.Node, given: dict[fx.Node, fx.Node]) -> fx.Node:
        """Return an operator as it is, on these inputs."""
        if node.op == "call_module":
            path = str(node.target)
            self._root.setdefault(path, copied(self._network, path))
        return self._graph.node_copy(node, given.__getitem__)

    def _beside(self, node: fx.Node, way: TileWay) -> fx.Node:
        """Return an input of an operator; beside tiles, what every rank has."""
        made = self._attribute(node) if node.op == "get_attr" else self._made[node]
        if way is not TileWay.PIXELS or in_tiles(self._network, node) or not self._learns(node):
            return made
        return self._call("beside_tiles", node, BesideTiles(tiling=self._tiling), made)

    def _learns(self, node: fx.Node) -> bool:
        """Return whether a value is a tensor that may have a gradient."""
        if node.op == "get_attr":
            return isinstance(attribute(self._network.module, str(node.target)), nn.Parameter)
        return node in self._network.shapes

    def _gathered_inputs(self, node: fx.Node) -> dict[fx.Node, fx.Node]:
        found = {}
        for one in node.all_input_nodes:
            if one.op == "get_attr":
                found[one] = self._attribute(one)
            elif in_tiles(self._network, one):
                if one not in self._whole:
                    gather = AllGather(tiling=self._tiling_of(one))
                    self._whole[one] = self._call("gathered", one, gather, self._made[one])
                found[one] = self._whole[one]
            else:
                found[one] = self._made[one]
        return found

    def _cut(self, node: fx.Node, made: fx.Node) -> fx.Node:
        """Return this rank's tile of what was computed on gathered maps, or that, if no map."""
        if not in_tiles(self._network, node):
            return made
        self._whole[node] = made
        return self._call("own_tile", node, OwnTile(tiling=self._tiling_of(node)), made)

    def _mean(self, node: fx.Node, each: Operator) -> fx.Node:
        source = node.all_input_nodes[0]
        mean = SpatialGlobalAvgPool2d(tiling=self._tiling_of(source))
        made = self._call("mean", node, mean, self._made[source])
        if each.shape is None or len(each.shape) == 3:
            return made
        return self._graph.call_method("flatten", (made, 1))

    def _number(self, each: Operator) -> fx.Node:
        """Return a size or a number: of whole maps, as it was traced, and of as many images."""
        node = each.node
        sources = [one for one in node.all_input_nodes if in_tiles(self._network, one)]
        if not sources:
            given = {
                one: self._made.get(one) or self._attribute(one) for one in node.all_input_nodes
            }
            return self._copied(node, given)
        if each.value is None:  # it counts images
            return self._copied(node, {one: self._made[one] for one in node.all_input_nodes})
        if isinstance(each.value, tuple) and _is_size(node):
            images = self._graph.call_method("size", (self._made[sources[0]], 0))
            return self._graph.call_function(_size, (images, *each.value))
        return self._graph.call_function(_constant, (each.value,))

    def _attribute(self, node: fx.Node) -> fx.Node:
        if node not in self._made:
            path = str(node.target)
            self._root.setdefault(path, copied(self._network, path))
            self._made[node] = self._graph.node_copy(node)
        return self._made[node]

    def _call(self, word: str, node: fx.Node, module: nn.Module, made: fx.Node) -> fx.Node:
        """Return the call of a module that the user's network has not, on a value."""
        path = f"{word}_{node.name}"
        self._root.setdefault(path, module)
        return self._graph.call_module(path, (made,))

    def _counterpart(self, node: fx.Node) -> nn.Module:
        """Return the operator over tiles, with the weights that the network was loaded with."""
        tiling = self._tiling_of(node.all_input_nodes[0])
        module = module_of(self._network, node)
        try:
            made = _counterpart(module, tiling, self._norm_of)
        except ValueError as error:
            raise CannotRunError(f"network {self._network.name}: {where(node)}: {error}") from None
        made.load_state_dict(module.state_dict())  # type: ignore[union-attr]
        return made

    def _tiling_of(self, node: fx.Node) -> Tiling:
        _, height, width = self._network.shapes[node]
        grid: Grid = self._tiling.partition.grid
        if height < grid.rows or width < grid.cols:
            raise CannotRunError(
                f"network {self._network.name}: {where(node)} has {height}x{width} pixels, too few "
                f"for a grid of {grid}; take a larger image_size, fewer tiles, or end the stages "
                "in tiles before it, by balance"
            )
        return self._tiling.resized(height, width)


def _counterpart(module: nn.Module | None, tiling: Tiling, norm_of: NormOf) -> nn.Module:
    match module:
        case nn.Conv2d():
            return SpatialConv2d(
                module.in_channels,
                module.out_channels,
                _pair(module.kernel_size),
                _pair(module.stride),
                _pair(module.padding),
                _pair(module.dilation),
                module.groups,
                module.bias is not None,
                tiling=tiling,
            )
        case nn.MaxPool2d():
            windows = module.kernel_size, module.stride, module.padding, module.dilation
            return SpatialMaxPool2d(*windows, tiling=tiling)
        case nn.AvgPool2d():
            sizes = module.kernel_size, module.stride, module.padding, module.count_include_pad
            return SpatialAvgPool2d(*sizes, tiling=tiling)
        case nn.GroupNorm():
            words = module.num_groups, module.num_channels, module.eps, module.affine
            return SpatialGroupNorm(*words, tiling=tiling)
        case nn.InstanceNorm2d():
            channels = module.num_features
            return SpatialGroupNorm(channels, channels, module.eps, module.affine, tiling=tiling)
        case nn.BatchNorm2d():
            return norm_of(module, tiling)
    raise AssertionError("others have no counterpart")


def _pair(value: Any) -> tuple[int, int]:
    first, second = value if isinstance(value, tuple) else (value, value)
    return int(first), int(second)


def _is_size(node: fx.Node) -> bool:
    """Return whether a node asks for all sides of a tensor."""
    return node.target == "size" or node.target is getattr


def _size(images: int, *sides: int) -> tuple[int, ...]:
    return images, *sides


def _constant(value: Any) -> Any:
    return value
