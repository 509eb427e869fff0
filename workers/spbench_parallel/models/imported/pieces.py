"""Pieces of an imported network: graphs of the operators of one layer."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx, nn

from spbench_core.layout.tiles import Box
from spbench_core.models.parts import MapShape
from spbench_parallel.models.imported.cuts import LayerSpan
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.hooks import suspend_hooks
from spbench_parallel.models.imported.stochastic import DropByPosition
from spbench_parallel.models.imported.tracing import Operator, TracedNetwork


@dataclass(frozen=True, eq=False)
class ImportedPiece:
    """A piece of an imported network, computed by one stage.

    Attributes:
        network: The network.
        span: The operators.
        code: Its operators as text, equal for equal networks.
    """

    network: TracedNetwork = field(repr=False)
    span: LayerSpan = field(repr=False)
    code: str

    @property
    def parameters(self) -> int:
        """The number of its trainable parameters."""
        return sum(parameter.numel() for parameter in self._find_tensors("parameters").values())

    @property
    def multiply_adds(self) -> int:
        """Its multiply-adds for one image."""
        return sum(operator.multiply_adds for operator in self.operators)

    @property
    def input_maps(self) -> Sequence[tuple[MapShape, bool]]:
        """The maps that its operators read, and whether they are normalised."""
        return [
            (
                to_map(shape),
                isinstance(self.network.get_module(operator.node), nn.modules.batchnorm._BatchNorm),
            )
            for operator in self.operators
            for node in operator.node.all_input_nodes
            if (shape := self.network.shapes.get(node))
        ]

    def paths(self) -> list[str]:
        """Return the paths of parameters and statistics in the user's state_dict."""
        return [*self._find_tensors("parameters"), *self._find_tensors("buffers")]

    def make_module(self) -> fx.GraphModule:
        """Return a new module of it, with the weights that the network was loaded with.

        Input and output are a tensor ``batch x channels x rows x cols``, or a tuple of several.
        """
        graph = fx.Graph()
        span = self.span
        new_module_by_path = dict[str, Any]()
        new_node_by_node = add_inputs(graph, self.network, span.inputs)
        copy_by_id: dict[int, Any] = {}
        for operator in self.operators:
            for node in operator.node.all_input_nodes:
                if node.op != "get_attr" or node in new_node_by_node:
                    continue
                if self.network.is_constant(node):
                    new_node_by_node[node] = add_constant(
                        graph, new_module_by_path, self.network, node
                    )
                else:
                    new_node_by_node[node] = graph.node_copy(node)
            if operator.node in self.network.stochastic:
                path = f"dropped_{operator.node.name}"
                (source, *_) = operator.node.all_input_nodes
                new_module_by_path[path] = make_drop(self.network, operator.node)
                new_node_by_node[operator.node] = graph.call_module(
                    path, (new_node_by_node[source],)
                )
            else:
                new_node_by_node[operator.node] = graph.node_copy(
                    operator.node, new_node_by_node.__getitem__
                )
        add_outputs(graph, self.network, span, new_node_by_node)
        module_by_path = {
            str(node.target): copy_attribute(self.network, str(node.target), copy_by_id)
            for node in graph.nodes
            if node.op in ("call_module", "get_attr") and node.target not in new_module_by_path
        }
        module_by_path |= new_module_by_path
        return fx.GraphModule(module_by_path, graph, class_name="Piece")

    @property
    def operators(self) -> Sequence[Operator]:
        """Its operators, in order."""
        return self.network.operators[self.span.first : self.span.end]

    def _find_tensors(self, registry: str) -> dict[str, torch.Tensor]:
        """Return its ``parameters`` or ``buffers`` by path."""
        tensor_by_path: dict[str, torch.Tensor] = {}
        tensor_type = nn.Parameter if registry == "parameters" else torch.Tensor
        for operator in self.operators:
            module = self.network.get_module(operator.node)
            if module is not None:
                named_tensors = getattr(module, f"named_{registry}")()
                tensor_by_path |= {
                    f"{operator.node.target}.{name}": tensor for name, tensor in named_tensors
                }
            for node in operator.node.all_input_nodes:
                if node.op == "get_attr" and not self.network.is_constant(node):
                    tensor = get_attribute(self.network.module, str(node.target))
                    if isinstance(tensor, tensor_type) and (
                        registry == "parameters" or not isinstance(tensor, nn.Parameter)
                    ):
                        tensor_by_path[str(node.target)] = tensor
        # A tied parameter has several names: keep the first one, like `named_parameters`.
        first_name_by_tensor: dict[int, str] = {}
        for name, tensor in tensor_by_path.items():
            first_name_by_tensor.setdefault(id(tensor), name)
        return {name: tensor_by_path[name] for name in first_name_by_tensor.values()}


def copy_attribute(network: TracedNetwork, path: str, copy_by_id: dict[int, Any]) -> Any:
    """Return a copy of a module or tensor that does not write into its input.

    Args:
        network: The network.
        path: The path of the module or tensor.
        copy_by_id: The copies in this piece so far, so that a shared parameter stays shared.
    """
    original = get_attribute(network.module, path)
    with suspend_hooks(original):
        duplicate = copy.deepcopy(original, copy_by_id)
    if getattr(duplicate, "inplace", False):
        duplicate.inplace = False  # the input belongs to the previous layer
    return duplicate


def make_drop(
    network: TracedNetwork, node: fx.Node, box: Box | None = None, *, channels_last: bool = False
) -> DropByPosition:
    """Return a rank's stochastic operator, for whole maps or a box of them."""
    arguments = network.stochastic[node], network.shapes[node], box
    return DropByPosition(*arguments, channels_last=channels_last)


class Constant(nn.Module):
    """A tensor created by a network's forward pass, which is not in its state_dict."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self._values = values

    def forward(self, like: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the tensor on the device of another input of the operator."""
        device = (like if isinstance(like, torch.Tensor) else like[0]).device
        self._values = self._values.to(device)
        return self._values


def add_constant(
    graph: fx.Graph, module_by_path: dict[str, Any], network: TracedNetwork, node: fx.Node
) -> fx.Node:
    """Add a constant to a piece's graph, and its module to the graph's root."""
    path = f"constant_{node.name}"
    module_by_path[path] = Constant(get_attribute(network.module, str(node.target)))
    placeholder = next(candidate for candidate in graph.nodes if candidate.op == "placeholder")
    return graph.call_module(path, (placeholder,))


def add_inputs(
    graph: fx.Graph, network: TracedNetwork, inputs: Sequence[fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Return the inputs of a piece by node, reshaped for its operators."""
    maps = graph.placeholder("maps")
    if len(inputs) == 1:
        return {inputs[0]: _reshape_to_tensor(graph, maps, network.shapes[inputs[0]])}
    return {
        node: _reshape_to_tensor(
            graph, graph.call_method("__getitem__", (maps, index)), network.shapes[node]
        )
        for index, node in enumerate(inputs)
    }


def add_outputs(
    graph: fx.Graph,
    network: TracedNetwork,
    span: LayerSpan,
    new_node_by_node: Mapping[fx.Node, fx.Node],
) -> None:
    """End a piece's graph with its outputs: maps, or finally logits.

    Maps are converted to the number format of the input maps, like in messages between stages. So
    stages and a single process round alike if an operator returns a wider format.
    """
    if span.end == len(network.operators):
        output_nodes = [new_node_by_node[node] for node in span.outputs]
    else:
        placeholder = next(node for node in graph.nodes if node.op == "placeholder")
        maps = (
            _reshape_to_map(graph, new_node_by_node[node], network.shapes[node])
            for node in span.outputs
        )
        output_nodes = [
            graph.call_function(_match_format, (output_map, placeholder)) for output_map in maps
        ]
    graph.output(output_nodes[0] if len(output_nodes) == 1 else tuple(output_nodes))


def _match_format(
    output: torch.Tensor, input_maps: torch.Tensor | Sequence[torch.Tensor]
) -> torch.Tensor:
    """Return values in the number format of the input maps."""
    return output.to(
        input_maps.dtype if isinstance(input_maps, torch.Tensor) else input_maps[0].dtype
    )


def _reshape_to_tensor(graph: fx.Graph, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    """Return a map in a tensor's shape; with three axes it is unchanged."""
    return node if len(shape) == 3 else graph.call_method("reshape", (node, -1, *shape))


def _reshape_to_map(graph: fx.Graph, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    if len(shape) == 3:
        return node
    return graph.call_method("reshape", (node, -1, *to_map(shape).shape))


def to_map(shape: Sequence[int]) -> MapShape:
    """Return a one-image tensor shape as a map; without three axes it is a vector."""
    return MapShape(*shape) if len(shape) == 3 else MapShape(prod(shape), 1, 1)
