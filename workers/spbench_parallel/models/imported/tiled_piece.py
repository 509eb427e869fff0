"""Tiled pieces of an imported network, for a rank with one tile of each map."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import MapShape
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
from spbench_parallel.models.imported.pixel_axes import (
    MAP_AXES,
    find_pixel_axes,
    get_map_size,
    is_tiled,
)
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
"""ReLU as a function, and the name of torch.Tensor's method."""
_PLAIN_NAMES = "weight", "bias", "running_mean", "running_var", "num_batches_tracked"
"""The parameters and buffers of modules that have counterparts."""


def build_tiled_piece(
    piece: ImportedPiece, tiling: Tiling, norm_factory: NormFactory
) -> fx.GraphModule:
    """Return a new module of a piece for a rank that has one tile of each map.

    Args:
        piece: The piece.
        tiling: The tiles of the image; each map is cut in the same way.
        norm_factory: Creates batch normalisation.

    Raises:
        CannotRunError: A map has fewer pixels than there are tiles, or an operator over tiles is
            used twice.
    """
    return _TiledPieceBuilder(piece, tiling, norm_factory).build()


class _TiledPieceBuilder:
    """Builds one piece: its graph, and the modules that the graph calls."""

    def __init__(self, piece: ImportedPiece, tiling: Tiling, norm_factory: NormFactory) -> None:
        self._piece = piece
        self._tiling = tiling
        self._norm_factory = norm_factory
        self._network = piece.network
        self._grid = tiling.partition.grid
        self._strategies = choose_strategies(piece.network, self._grid, piece.operators)
        self._graph = fx.Graph()
        self._modules = dict[str, Any]()
        self._memo: dict[int, Any] = {}
        self._new_nodes: dict[fx.Node, fx.Node] = {}
        self._gathered_nodes: dict[fx.Node, fx.Node] = {}

    def build(self) -> fx.GraphModule:
        span = self._piece.span
        self._new_nodes.update(add_inputs(self._graph, self._network, span.inputs))
        for operator in self._piece.operators:
            self._new_nodes[operator.node] = self._add_operator(operator)
        add_outputs(self._graph, self._network, span, self._new_nodes)
        return fx.GraphModule(self._modules, self._graph, class_name="TiledPiece")

    def _add_operator(self, operator: Operator) -> fx.Node:
        """Add an operator by its strategy; return the node of its output."""
        node = operator.node
        match self._strategies[node]:
            case TileStrategy.NUMBER:
                return self._add_number(operator)
            case TileStrategy.TILES:
                return self._add_counterpart(node)
            case TileStrategy.MEAN:
                return self._add_mean(node, operator)
            case TileStrategy.GROUPS:
                return self._add_regrouping(node)
            case TileStrategy.GATHERED:
                return self._cut_into_tiles(node, self._add_timed(node, self._gather_inputs(node)))
            case TileStrategy.PIXELS:
                return self._add_copy(node, self._get_inputs(node, TileStrategy.PIXELS))
            case TileStrategy.WHOLE:
                return self._add_whole(node)

    def _add_counterpart(self, node: fx.Node) -> fx.Node:
        """Add the operator over tiles that replaces an operator of whole images."""
        counterpart = self._make_counterpart(node)
        path = str(node.target) if counterpart.state_dict() else f"{node.name}_over_tiles"
        if path in self._modules:
            raise CannotRunError(
                f"network {self._network.name}: {locate(node)} is used twice, which cannot be "
                "over tiles; take scheme lp, or a second module with the same parameters "
                "(b.weight = a.weight)"
            )
        self._modules[path] = counterpart
        self._add_halo_buffer(node, counterpart)
        return self._graph.call_module(path, (self._new_nodes[node.all_input_nodes[0]],))

    def _add_regrouping(self, node: fx.Node) -> fx.Node:
        """Add an operator that splits or joins channels of a tile."""
        shape = self._network.shapes[node]
        source = node.all_input_nodes[0]
        return self._graph.call_function(_regroup_channels, (self._new_nodes[source], *shape[:-2]))

    def _add_whole(self, node: fx.Node) -> fx.Node:
        """Add an operator on replicated values; a map is cut into tiles."""
        inputs = self._get_inputs(node, TileStrategy.WHOLE)
        if node in find_gathered_operators(self._network, self._grid):
            return self._cut_into_tiles(node, self._add_timed(node, inputs))
        return self._cut_into_tiles(node, self._add_copy(node, inputs))

    def _get_inputs(self, node: fx.Node, strategy: TileStrategy) -> dict[fx.Node, fx.Node]:
        return {source: self._get_input(source, strategy) for source in node.all_input_nodes}

    def _add_halo_buffer(self, node: fx.Node, counterpart: nn.Module) -> None:
        """Let a ReLU that only this operator reads write into a buffer with halo space."""
        relu = node.all_input_nodes[0]
        reader = getattr(counterpart, "tiled", None)
        relu_copy = self._new_nodes[relu]
        if not isinstance(reader, TiledWindow) or len(relu.users) > 1 or not self._is_relu(relu):
            return
        path = f"{relu.name}_with_halo_buffer"
        self._modules[path] = reader.make_preceding_relu()
        with self._graph.inserting_after(relu_copy):
            self._new_nodes[relu] = self._graph.call_module(path, (relu_copy.all_input_nodes[0],))
        self._graph.erase_node(relu_copy)

    def _is_relu(self, node: fx.Node) -> bool:
        """Return whether a value is the output of a ReLU on tiles in this piece."""
        if self._strategies.get(node) is not TileStrategy.PIXELS:
            return False
        module = self._network.get_module(node)
        return type(module) is nn.ReLU if module is not None else node.target in _RELUS

    def _add_timed(self, node: fx.Node, inputs: dict[fx.Node, fx.Node]) -> fx.Node:
        """Add an unchanged operator, timed as work on gathered maps."""
        first = next(source for source in inputs if source.op != "get_attr")
        inputs[first] = self._graph.call_function(start_gathered, (inputs[first],))
        return self._graph.call_function(stop_gathered, (self._add_copy(node, inputs),))

    def _add_drop(self, node: fx.Node, source: fx.Node) -> fx.Node:
        """Add a stochastic operator; on a map in tiles it covers this rank's tile."""
        is_tiled_map = self._strategies[node] is TileStrategy.PIXELS
        box = self._get_tiling(node).tile if is_tiled_map else None
        channels_last = is_tiled_map and find_pixel_axes(self._network)[node] == (0, 1)
        drop = make_drop(self._network, node, box, channels_last=channels_last)
        return self._call_new_module("dropped", node, drop, source)

    def _add_copy(self, node: fx.Node, inputs: dict[fx.Node, fx.Node]) -> fx.Node:
        """Add an unchanged operator on these inputs."""
        if node in self._network.stochastic:
            return self._add_drop(node, inputs[node.all_input_nodes[0]])
        if node.op == "call_module":
            path = str(node.target)
            self._modules.setdefault(path, copy_attribute(self._network, path, self._memo))
        return self._graph.node_copy(node, inputs.__getitem__)

    def _get_input(self, node: fx.Node, strategy: TileStrategy) -> fx.Node:
        """Return an input of an operator.

        Replicated values with tiles get gradients that are summed over the tiles.
        """
        output = self._get_attribute_node(node) if node.op == "get_attr" else self._new_nodes[node]
        if (
            strategy is not TileStrategy.PIXELS
            or is_tiled(self._network, node)
            or not self._has_gradient(node)
        ):
            return output
        return self._call_new_module(
            "beside_tiles", node, ReplicatedValues(tiling=self._tiling), output
        )

    def _has_gradient(self, node: fx.Node) -> bool:
        """Return whether a value is a tensor that may have a gradient."""
        if node.op == "get_attr":
            return isinstance(get_attribute(self._network.module, str(node.target)), nn.Parameter)
        return node in self._network.shapes

    def _gather_inputs(self, node: fx.Node) -> dict[fx.Node, fx.Node]:
        inputs = {}
        for source in node.all_input_nodes:
            if source.op == "get_attr":
                inputs[source] = self._get_attribute_node(source)
            elif is_tiled(self._network, source):
                if source not in self._gathered_nodes:
                    self._gathered_nodes[source] = self._gather(source)
                inputs[source] = self._gathered_nodes[source]
            else:
                inputs[source] = self._new_nodes[source]
        return inputs

    def _gather(self, node: fx.Node) -> fx.Node:
        """Add the all-gather of a tiled value."""
        gather = AllGather(tiling=self._get_tiling(node))
        return self._apply_to_maps("gathered", node, gather, self._new_nodes[node])

    def _cut_into_tiles(self, node: fx.Node, output: fx.Node) -> fx.Node:
        """Return this rank's tile of a gathered output, or the output if it is not a map."""
        if not is_tiled(self._network, node):
            return output
        self._gathered_nodes[node] = output
        return self._apply_to_maps("own_tile", node, OwnTile(tiling=self._get_tiling(node)), output)

    def _apply_to_maps(
        self, prefix: str, node: fx.Node, module: nn.Module, output: fx.Node
    ) -> fx.Node:
        """Apply a module of maps to a value with channels on any axes."""
        shape = self._network.shapes[node]
        axes = find_pixel_axes(self._network)[node]
        if axes == MAP_AXES and len(shape) == 3:
            return self._call_new_module(prefix, node, module, output)
        # The module takes maps: join all channel axes into one, in front of rows and columns.
        channel_axes = [axis for axis in range(len(shape)) if axis not in axes]
        new_order = [0, *(axis + 1 for axis in (*channel_axes, *axes))]
        output = self._graph.call_function(torch.permute, (output, new_order))
        output = self._call_new_module(
            prefix, node, module, self._graph.call_function(_flatten_channels, (output,))
        )
        output = self._graph.call_function(
            _regroup_channels, (output, *(shape[axis] for axis in channel_axes))
        )
        original_order = [new_order.index(axis) for axis in range(len(new_order))]
        return self._graph.call_function(torch.permute, (output, original_order))

    def _add_mean(self, node: fx.Node, operator: Operator) -> fx.Node:
        source = node.all_input_nodes[0]
        mean = SpatialGlobalAvgPool2d(tiling=self._get_tiling(source))
        output = self._call_new_module("mean", node, mean, self._new_nodes[source])
        if operator.shape is None or len(operator.shape) == 3:
            return output
        return self._graph.call_method("flatten", (output, 1))

    def _add_number(self, operator: Operator) -> fx.Node:
        """Add a size of the whole map, or another number."""
        node = operator.node
        inputs = {
            source: self._new_nodes.get(source) or self._get_attribute_node(source)
            for source in node.all_input_nodes
        }
        if operator.size_without_batch is None or not any(
            is_tiled(self._network, source) for source in inputs
        ):
            return self._add_copy(node, inputs)
        image_count = self._graph.call_method("size", (inputs[node.all_input_nodes[0]], 0))
        return self._graph.call_function(_make_size, (image_count, *operator.size_without_batch))

    def _get_attribute_node(self, node: fx.Node) -> fx.Node:
        if node not in self._new_nodes and self._network.is_constant(node):
            self._new_nodes[node] = add_constant(self._graph, self._modules, self._network, node)
        elif node not in self._new_nodes:
            path = str(node.target)
            self._modules.setdefault(path, copy_attribute(self._network, path, self._memo))
            self._new_nodes[node] = self._graph.node_copy(node)
        return self._new_nodes[node]

    def _call_new_module(
        self, prefix: str, node: fx.Node, module: nn.Module, source: fx.Node
    ) -> fx.Node:
        """Add the call of a module that the user's network does not have."""
        path = f"{prefix}_{node.name}"
        self._modules.setdefault(path, module)
        return self._graph.call_module(path, (source,))

    def _make_counterpart(self, node: fx.Node) -> nn.Module:
        """Return the operator over tiles, with the loaded weights."""
        network = self._network
        source = node.all_input_nodes[0]
        original = find_module(network, node)
        with suspend_hooks(original):
            module = copy.deepcopy(original, self._memo)
        factory = find_counterpart(network, node)
        assert factory is not None, "its strategy is TILES"
        input_size, output_size = (get_map_size(network, node_) for node_ in (source, node))
        if module is not None:
            self._check_plain(node, module)
        try:
            counterpart = factory(
                ConversionSpec(
                    module, input_size, output_size, self._get_tiling(source), self._norm_factory
                )
            )
        except ValueError as error:
            raise CannotRunError(f"network {network.name}: {locate(node)}: {error}") from None
        if module is not None:
            counterpart.load_state_dict(module.state_dict())
            for name, parameter in module.named_parameters():
                # Share the parameter, because other operators of this piece may be tied to it.
                counterpart.register_parameter(name, parameter)
        return counterpart

    def _check_plain(self, node: fx.Node, module: nn.Module) -> None:
        """Check that a module's weights are plain parameters.

        Raises:
            CannotRunError: They are computed before each call, as by ``weight_norm``.
        """
        extra_names = [name for name in module.state_dict() if name not in _PLAIN_NAMES]
        lacks_weight = getattr(module, "affine", False) and getattr(module, "weight", None) is None
        if not extra_names and not lacks_weight:
            return
        problem = f"computes its weights from {extra_names[0]}" if extra_names else "has no weight"
        raise CannotRunError(
            f"network {self._network.name}: {locate(node)} {problem}, which cannot be "
            "over tiles; take scheme lp, end the stages in tiles before it, by balance, or make it "
            "plain by torch's remove_parametrizations, remove_weight_norm, remove_spectral_norm or "
            "prune.remove"
        )

    def _get_tiling(self, node: fx.Node) -> Tiling:
        height, width = get_map_size(self._network, node)
        grid: Grid = self._tiling.partition.grid
        if height < grid.rows or width < grid.cols:
            raise CannotRunError(
                f"network {self._network.name}: {locate(node)} has {height}x{width} pixels, too "
                f"few for a grid of {grid}{_suggest_tiles(self._network, node, grid)}, or end "
                "the stages in tiles before it, by balance"
            )
        return self._tiling.resized(height, width)


def _suggest_tiles(network: TracedNetwork, node: fx.Node, grid: Grid) -> str:
    """Return the remedy for a map with too few pixels.

    Some maps stay as small for any image size.
    """
    remedy = "; take a larger image_size, fewer tiles"
    channels, height, width = network.image.shape
    image = MapShape(channels, 2 * height, 2 * width)
    try:
        larger_network = trace_network(network.name, network.module, image, advises=False)
    except CannotRunError:
        return remedy
    if list_targets(larger_network) != list_targets(network):
        return remedy
    position = network.positions[node]
    larger_node = node if position < 0 else larger_network.operators[position].node
    larger_shape = larger_network.shapes[larger_node]
    for axis, tile_count, other_axis_name in zip(
        find_pixel_axes(network)[node], (grid.rows, grid.cols), ("columns", "rows"), strict=True
    ):
        if network.shapes[node][axis] == larger_shape[axis] < tile_count:
            return f" at any image_size; take scheme lp, or tiles in {other_axis_name} alone"
    return remedy


def _regroup_channels(values: torch.Tensor, *channels: int) -> torch.Tensor:
    """Split or join the channels of maps."""
    return values.reshape(len(values), *channels, *values.shape[-2:])


def _flatten_channels(values: torch.Tensor) -> torch.Tensor:
    """Join the channel axes of maps into one."""
    return values.flatten(1, -3)


def _make_size(image_count: int, *sides: int) -> tuple[int, ...]:
    return image_count, *sides
