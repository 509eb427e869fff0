"""A piece of an imported network over tiles: a module of a rank that has one tile of each map."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from math import prod
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid
from spbench_core.layout.window import expand_pair
from spbench_core.models.parts import Map
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.counterparts import (
    ConversionSpec,
    NormFactory,
    find_counterpart,
    find_module,
)
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.hooks import suspend_hooks
from spbench_parallel.models.imported.messages import locate
from spbench_parallel.models.imported.pieces import (
    ImportedPiece,
    add_constant,
    add_inputs,
    add_outputs,
    copy_attribute,
    make_drop,
)
from spbench_parallel.models.imported.pixel_axes import MAP_AXES, is_tiled, map_size, pixel_axes
from spbench_parallel.models.imported.tile_strategies import (
    TileStrategy,
    choose_strategies,
    find_gathered_operators,
)
from spbench_parallel.models.imported.tracing import (
    Operator,
    TracedNetwork,
    list_targets,
    trace_network,
)
from spbench_parallel.spatial.comm_stats import start_gathered, stop_gathered
from spbench_parallel.spatial.operator import TiledWindow
from spbench_parallel.spatial.replicated import (
    AllGather,
    OwnTile,
    ReplicatedValues,
    SpatialGlobalAvgPool2d,
)
from spbench_parallel.spatial.tiling import Tiling

_RELUS = (functional.relu, torch.relu, "relu")
"""A ReLU's functions, and the method of tensors."""
_PLAIN_NAMES = "weight", "bias", "running_mean", "running_var", "num_batches_tracked"
"""The parameters and buffers of modules that have counterparts."""


def build_tiled_piece(piece: ImportedPiece, tiling: Tiling, norm_of: NormFactory) -> fx.GraphModule:
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


def list_gathered_operators(network: TracedNetwork, grids: Iterable[Grid]) -> list[fx.Node]:
    """Return the operators that are computed on gathered maps where images are in such tiles."""
    found = {node for grid in grids for node in find_gathered_operators(network, grid)}
    return [each.node for each in network.operators if each.node in found]


def count_gathered_values(network: TracedNetwork, nodes: Iterable[fx.Node]) -> int:
    """Return how many numbers of one image are gathered for such operators, on every rank."""
    sources = {one: None for node in nodes for one in node.all_input_nodes}
    return sum(prod(network.shapes[one]) for one in sources if is_tiled(network, one))


def is_same_over_tiles(small: TracedNetwork, whole: TracedNetwork, grid: Grid) -> bool:
    """Return whether a network at a smaller size is over tiles what it is at another.

    Each operator is computed in the same way, and each tile has the pixels that its neighbours
    read, as far as it has them in the larger image.
    """
    ways, others = (choose_strategies(each, grid).values() for each in (small, whole))
    if list(ways) != list(others):
        return False
    pairs = zip(small.operators, whole.operators, strict=True)
    return all(_has_halos(small, one.node, whole, other.node, grid) for one, other in pairs)


def _has_halos(
    small: TracedNetwork, one: fx.Node, whole: TracedNetwork, other: fx.Node, grid: Grid
) -> bool:
    sources = [node for node in one.all_input_nodes if is_tiled(small, node)]
    larger = [node for node in other.all_input_nodes if is_tiled(whole, node)]
    if len(sources) != len(larger):
        return False
    reach = _reach(find_module(small, one))
    tiles = grid.rows, grid.cols
    return all(
        have // parts >= max(1, min(beyond, had // parts))
        for mine, theirs in zip(sources, larger, strict=True)
        for have, had, parts, beyond in zip(
            map_size(small, mine), map_size(whole, theirs), tiles, reach, strict=True
        )
    )


def _reach(module: nn.Module | None) -> tuple[int, int]:
    """Return how many rows and columns an operator may read beyond a tile."""
    if not isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
        return 0, 0
    kernel = expand_pair(module.kernel_size)
    dilation = expand_pair(getattr(module, "dilation", 1))
    return (kernel[0] - 1) * dilation[0], (kernel[1] - 1) * dilation[1]


class _Building:
    """The building of one piece: its graph, and the modules that the graph calls."""

    def __init__(self, piece: ImportedPiece, tiling: Tiling, norm_of: NormFactory) -> None:
        self._piece = piece
        self._tiling = tiling
        self._norm_of = norm_of
        self._network = piece.network
        self._grid = tiling.partition.grid
        self._ways = choose_strategies(piece.network, self._grid, piece.operators)
        self._graph = fx.Graph()
        self._root = dict[str, Any]()
        self._memo: dict[int, Any] = {}
        self._made: dict[fx.Node, fx.Node] = {}
        self._whole: dict[fx.Node, fx.Node] = {}

    def module(self) -> fx.GraphModule:
        span = self._piece.span
        self._made.update(add_inputs(self._graph, self._network, span.inputs))
        for each in self._piece.operators:
            self._made[each.node] = self._operator(each)
        add_outputs(self._graph, self._network, span, self._made)
        return fx.GraphModule(self._root, self._graph, class_name="TiledPiece")

    def _operator(self, each: Operator) -> fx.Node:
        node = each.node
        way = self._ways[each.node]
        if way is TileStrategy.NUMBER:
            return self._number(each)
        if way is TileStrategy.TILES:
            counterpart = self._counterpart(node)
            path = str(node.target) if counterpart.state_dict() else f"{node.name}_over_tiles"
            if path in self._root:
                raise CannotRunError(
                    f"network {self._network.name}: {locate(node)} is used twice, which cannot be "
                    "over tiles; take scheme lp, or a second module with the same parameters "
                    "(b.weight = a.weight)"
                )
            self._root[path] = counterpart
            self._leave_room(node, counterpart)
            return self._graph.call_module(path, (self._made[node.all_input_nodes[0]],))
        if way is TileStrategy.MEAN:
            return self._mean(node, each)
        if way is TileStrategy.GROUPS:
            shape = self._network.shapes[node]
            source = node.all_input_nodes[0]
            return self._graph.call_function(_regrouped, (self._made[source], *shape[:-2]))
        if way is TileStrategy.GATHERED:
            return self._cut(node, self._timed(node, self._gathered_inputs(node)))
        given = {one: self._beside(one, way) for one in node.all_input_nodes}
        if way is not TileStrategy.WHOLE:
            return self._copied(node, given)
        timed = node in find_gathered_operators(self._network, self._grid)
        return self._cut(node, (self._timed if timed else self._copied)(node, given))

    def _leave_room(self, node: fx.Node, counterpart: nn.Module) -> None:
        """Let a ReLU that this operator alone reads leave room for its halo around the tile."""
        relu = node.all_input_nodes[0]
        reader = getattr(counterpart, "tiled", None)
        copied = self._made[relu]
        if not isinstance(reader, TiledWindow) or len(relu.users) > 1 or not self._is_relu(relu):
            return
        path = f"{relu.name}_with_room"
        self._root[path] = reader.make_preceding_relu()
        with self._graph.inserting_after(copied):
            self._made[relu] = self._graph.call_module(path, (copied.all_input_nodes[0],))
        self._graph.erase_node(copied)

    def _is_relu(self, node: fx.Node) -> bool:
        """Return whether a value is that of a ReLU, which this piece computes on tiles."""
        if self._ways.get(node) is not TileStrategy.PIXELS:
            return False
        called = self._network.get_module(node)
        return type(called) is nn.ReLU if called is not None else node.target in _RELUS

    def _timed(self, node: fx.Node, given: dict[fx.Node, fx.Node]) -> fx.Node:
        """Return an operator as it is, on these inputs, whose time is that on gathered maps."""
        first = next(one for one in given if one.op != "get_attr")
        given[first] = self._graph.call_function(start_gathered, (given[first],))
        return self._graph.call_function(stop_gathered, (self._copied(node, given),))

    def _dropped(self, node: fx.Node, made: fx.Node) -> fx.Node:
        """Return what an operator of chance leaves: of a map in tiles, of this rank's."""
        by_pixel = self._ways[node] is TileStrategy.PIXELS
        box = self._tiling_of(node).tile if by_pixel else None
        channels_last = by_pixel and pixel_axes(self._network)[node] == (0, 1)
        drop = make_drop(self._network, node, box, channels_last=channels_last)
        return self._call("dropped", node, drop, made)

    def _copied(self, node: fx.Node, given: dict[fx.Node, fx.Node]) -> fx.Node:
        """Return an operator as it is, on these inputs."""
        if node in self._network.stochastic:
            return self._dropped(node, given[node.all_input_nodes[0]])
        if node.op == "call_module":
            path = str(node.target)
            self._root.setdefault(path, copy_attribute(self._network, path, self._memo))
        return self._graph.node_copy(node, given.__getitem__)

    def _beside(self, node: fx.Node, way: TileStrategy) -> fx.Node:
        """Return an input of an operator; beside tiles, what every rank has."""
        made = self._attribute(node) if node.op == "get_attr" else self._made[node]
        if (
            way is not TileStrategy.PIXELS
            or is_tiled(self._network, node)
            or not self._learns(node)
        ):
            return made
        return self._call("beside_tiles", node, ReplicatedValues(tiling=self._tiling), made)

    def _learns(self, node: fx.Node) -> bool:
        """Return whether a value is a tensor that may have a gradient."""
        if node.op == "get_attr":
            return isinstance(get_attribute(self._network.module, str(node.target)), nn.Parameter)
        return node in self._network.shapes

    def _gathered_inputs(self, node: fx.Node) -> dict[fx.Node, fx.Node]:
        found = {}
        for one in node.all_input_nodes:
            if one.op == "get_attr":
                found[one] = self._attribute(one)
            elif is_tiled(self._network, one):
                if one not in self._whole:
                    self._whole[one] = self._gathered(one)
                found[one] = self._whole[one]
            else:
                found[one] = self._made[one]
        return found

    def _gathered(self, node: fx.Node) -> fx.Node:
        """Return what is in tiles, whole."""
        gather = AllGather(tiling=self._tiling_of(node))
        return self._of_maps("gathered", node, gather, self._made[node])

    def _cut(self, node: fx.Node, made: fx.Node) -> fx.Node:
        """Return this rank's tile of what was computed on gathered maps, or that, if no map."""
        if not is_tiled(self._network, node):
            return made
        self._whole[node] = made
        return self._of_maps("own_tile", node, OwnTile(tiling=self._tiling_of(node)), made)

    def _of_maps(self, word: str, node: fx.Node, module: nn.Module, made: fx.Node) -> fx.Node:
        """Return what a module of maps gives of a value, whose channels may be elsewhere."""
        shape = self._network.shapes[node]
        axes = pixel_axes(self._network)[node]
        if axes == MAP_AXES and len(shape) == 3:
            return self._call(word, node, module, made)
        # Channels, of one axis or several, become one, and come first.
        others = [at for at in range(len(shape)) if at not in axes]
        order = [0, *(at + 1 for at in (*others, *axes))]
        made = self._graph.call_function(torch.permute, (made, order))
        made = self._call(word, node, module, self._graph.call_function(_flat, (made,)))
        made = self._graph.call_function(_regrouped, (made, *(shape[at] for at in others)))
        back = [order.index(at) for at in range(len(order))]
        return self._graph.call_function(torch.permute, (made, back))

    def _mean(self, node: fx.Node, each: Operator) -> fx.Node:
        source = node.all_input_nodes[0]
        mean = SpatialGlobalAvgPool2d(tiling=self._tiling_of(source))
        made = self._call("mean", node, mean, self._made[source])
        if each.shape is None or len(each.shape) == 3:
            return made
        return self._graph.call_method("flatten", (made, 1))

    def _number(self, each: Operator) -> fx.Node:
        """Return a size, of the whole map and of as many images, or another number of images."""
        node = each.node
        given = {one: self._made.get(one) or self._attribute(one) for one in node.all_input_nodes}
        if each.value is None or not any(is_tiled(self._network, one) for one in given):
            return self._copied(node, given)
        images = self._graph.call_method("size", (given[node.all_input_nodes[0]], 0))
        return self._graph.call_function(_size, (images, *each.value))

    def _attribute(self, node: fx.Node) -> fx.Node:
        if node not in self._made and self._network.is_constant(node):
            self._made[node] = add_constant(self._graph, self._root, self._network, node)
        elif node not in self._made:
            path = str(node.target)
            self._root.setdefault(path, copy_attribute(self._network, path, self._memo))
            self._made[node] = self._graph.node_copy(node)
        return self._made[node]

    def _call(self, word: str, node: fx.Node, module: nn.Module, made: fx.Node) -> fx.Node:
        """Return the call of a module that the user's network has not, on a value."""
        path = f"{word}_{node.name}"
        self._root.setdefault(path, module)
        return self._graph.call_module(path, (made,))

    def _counterpart(self, node: fx.Node) -> nn.Module:
        """Return the operator over tiles, with the weights that the network was loaded with."""
        network = self._network
        source = node.all_input_nodes[0]
        original = find_module(network, node)
        with suspend_hooks(original):
            module = copy.deepcopy(original, self._memo)
        make = find_counterpart(network, node)
        assert make is not None, "its way is by its counterpart"
        given, result = (map_size(network, one) for one in (source, node))
        if module is not None:
            self._check_plain(node, module)
        try:
            made = make(
                ConversionSpec(module, given, result, self._tiling_of(source), self._norm_of)
            )
        except ValueError as error:
            raise CannotRunError(f"network {network.name}: {locate(node)}: {error}") from None
        if module is not None:
            made.load_state_dict(module.state_dict())
            for name, parameter in module.named_parameters():
                # If it is tied, other operators of this piece have the same one.
                made.register_parameter(name, parameter)
        return made

    def _check_plain(self, node: fx.Node, module: nn.Module) -> None:
        """Check that a module's weights are parameters of the names that its class has.

        Raises:
            CannotRunError: They are computed before each call, as by ``weight_norm``.
        """
        others = [name for name in module.state_dict() if name not in _PLAIN_NAMES]
        replaced = getattr(module, "affine", False) and getattr(module, "weight", None) is None
        if not others and not replaced:
            return
        what = f"computes its weights from {others[0]}" if others else "has no weight"
        raise CannotRunError(
            f"network {self._network.name}: {locate(node)} {what}, which cannot be "
            "over tiles; take scheme lp, end the stages in tiles before it, by balance, or make it "
            "plain by torch's remove_parametrizations, remove_weight_norm, remove_spectral_norm or "
            "prune.remove"
        )

    def _tiling_of(self, node: fx.Node) -> Tiling:
        height, width = map_size(self._network, node)
        grid: Grid = self._tiling.partition.grid
        if height < grid.rows or width < grid.cols:
            raise CannotRunError(
                f"network {self._network.name}: {locate(node)} has {height}x{width} pixels, too "
                f"few for a grid of {grid}{_remedy_of_tiles(self._network, node, grid)}, or end "
                "the stages in tiles before it, by balance"
            )
        return self._tiling.resized(height, width)


def _remedy_of_tiles(network: TracedNetwork, node: fx.Node, grid: Grid) -> str:
    """Return the remedy for a map of too few pixels: no image makes some maps larger."""
    usual = "; take a larger image_size, fewer tiles"
    channels, height, width = network.image.shape
    image = Map(channels, 2 * height, 2 * width)
    try:
        larger = trace_network(network.name, network.module, image, advises=False)
    except CannotRunError:
        return usual
    if list_targets(larger) != list_targets(network):
        return usual
    twin = larger.operators[network.positions[node]].node if network.positions[node] >= 0 else node
    shape = larger.shapes[twin]
    for axis, parts, ways in zip(
        pixel_axes(network)[node], (grid.rows, grid.cols), ("columns", "rows"), strict=True
    ):
        if network.shapes[node][axis] == shape[axis] < parts:
            return f" at any image_size; take scheme lp, or tiles in {ways} alone"
    return usual


def _regrouped(values: torch.Tensor, *channels: int) -> torch.Tensor:
    """Return maps whose channels are parted, or joined."""
    return values.reshape(len(values), *channels, *values.shape[-2:])


def _flat(values: torch.Tensor) -> torch.Tensor:
    """Return maps whose channels are one axis."""
    return values.flatten(1, -3)


def _size(images: int, *sides: int) -> tuple[int, ...]:
    return images, *sides
