"""Pieces of an imported network: the graphs of operators that stages compute by themselves."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx, nn

from spbench_core.layout.tiles import Box
from spbench_core.models.parts import Map
from spbench_parallel.models.imported.cuts import LayerSpan
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.hooks import suspend_hooks
from spbench_parallel.models.imported.stochastic import DropByPosition
from spbench_parallel.models.imported.tracing import Operator, TracedNetwork


@dataclass(frozen=True, eq=False)
class ImportedPiece:
    """A piece of an imported network: what a stage computes by itself.

    Attributes:
        network: The network.
        span: The operators.
    """

    network: TracedNetwork = field(repr=False)
    span: LayerSpan = field(repr=False)
    code: str
    """Its operators in words, which are the same for the same network."""

    @property
    def parameters(self) -> int:
        """Its trainable parameters."""
        return sum(one.numel() for one in self._tensors("parameters").values())

    @property
    def multiply_adds(self) -> int:
        """Its multiply-adds for one image."""
        return sum(each.multiply_adds for each in self.operators)

    @property
    def input_maps(self) -> Sequence[tuple[Map, bool]]:
        """The maps that its operators read, and whether they are normalised."""
        return [
            (
                to_map(shape),
                isinstance(self.network.get_module(each.node), nn.modules.batchnorm._BatchNorm),
            )
            for each in self.operators
            for node in each.node.all_input_nodes
            if (shape := self.network.shapes.get(node))
        ]

    def paths(self) -> list[str]:
        """Return the paths of parameters and running statistics, as in the user's state_dict."""
        return [*self._tensors("parameters"), *self._tensors("buffers")]

    def make_module(self) -> fx.GraphModule:
        """Return a new module of it, with the weights that the network was loaded with.

        It takes and gives a tensor ``batch x channels x rows x cols``, or a tuple of several.
        """
        graph = fx.Graph()
        span = self.span
        ours = dict[str, Any]()
        made = add_inputs(graph, self.network, span.inputs)
        memo: dict[int, Any] = {}
        for each in self.operators:
            for node in each.node.all_input_nodes:
                if node.op != "get_attr" or node in made:
                    continue
                if self.network.is_constant(node):
                    made[node] = add_constant(graph, ours, self.network, node)
                else:
                    made[node] = graph.node_copy(node)
            if each.node in self.network.stochastic:
                path = f"dropped_{each.node.name}"
                (source, *_) = each.node.all_input_nodes
                ours[path] = make_drop(self.network, each.node)
                made[each.node] = graph.call_module(path, (made[source],))
            else:
                made[each.node] = graph.node_copy(each.node, made.__getitem__)
        add_outputs(graph, self.network, span, made)
        root = {
            str(node.target): copy_attribute(self.network, str(node.target), memo)
            for node in graph.nodes
            if node.op in ("call_module", "get_attr") and node.target not in ours
        }
        root |= ours
        return fx.GraphModule(root, graph, class_name="Piece")

    @property
    def operators(self) -> Sequence[Operator]:
        """Its operators, in their order."""
        return self.network.operators[self.span.first : self.span.last]

    def _tensors(self, kind: str) -> dict[str, torch.Tensor]:
        """Return its ``parameters`` or ``buffers`` by path."""
        found: dict[str, torch.Tensor] = {}
        wanted = nn.Parameter if kind == "parameters" else torch.Tensor
        for each in self.operators:
            module = self.network.get_module(each.node)
            if module is not None:
                named = getattr(module, f"named_{kind}")()
                found |= {f"{each.node.target}.{name}": tensor for name, tensor in named}
            for node in each.node.all_input_nodes:
                if node.op == "get_attr" and not self.network.is_constant(node):
                    tensor = get_attribute(self.network.module, str(node.target))
                    if isinstance(tensor, wanted) and (
                        kind == "parameters" or not isinstance(tensor, nn.Parameter)
                    ):
                        found[str(node.target)] = tensor
        # A tied parameter has several names here, and is one parameter.
        names: dict[int, str] = {}
        for name, tensor in found.items():
            names.setdefault(id(tensor), name)
        return {name: found[name] for name in names.values()}


def copy_attribute(network: TracedNetwork, path: str, memo: dict[int, Any]) -> Any:
    """Return a copy of a network's module or tensor, which does not write into its input.

    Args:
        network: The network.
        path: The path of the module or tensor.
        memo: The copies of the same piece so far: a parameter of two modules stays one parameter.
    """
    original = get_attribute(network.module, path)
    with suspend_hooks(original):
        duplicate = copy.deepcopy(original, memo)
    if getattr(duplicate, "inplace", False):
        duplicate.inplace = False  # what a layer gets belongs to the layer before
    return duplicate


def make_drop(
    network: TracedNetwork, node: fx.Node, box: Box | None = None, *, channels_last: bool = False
) -> DropByPosition:
    """Return a rank's operator of chance, of whole maps or of this box of them."""
    words = network.stochastic[node], network.shapes[node], box
    return DropByPosition(*words, channels_last=channels_last)


class Constant(nn.Module):
    """A tensor that a network's forward pass has written into it, and its state_dict has not."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self._values = values

    def forward(self, beside: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
        """Return it, on the device of what it is computed with."""
        device = (beside if isinstance(beside, torch.Tensor) else beside[0]).device
        self._values = self._values.to(device)
        return self._values


def add_constant(
    graph: fx.Graph, root: dict[str, Any], network: TracedNetwork, node: fx.Node
) -> fx.Node:
    """Return a constant in a piece's graph, and add its module to the root of them."""
    path = f"constant_{node.name}"
    root[path] = Constant(get_attribute(network.module, str(node.target)))
    given = next(one for one in graph.nodes if one.op == "placeholder")
    return graph.call_module(path, (given,))


def add_inputs(
    graph: fx.Graph, network: TracedNetwork, inputs: Sequence[fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Return the tensors that a piece gets, by node, in the shapes that its operators ask for."""
    given = graph.placeholder("maps")
    if len(inputs) == 1:
        return {inputs[0]: _shaped(graph, given, network.shapes[inputs[0]])}
    return {
        node: _shaped(graph, graph.call_method("__getitem__", (given, at)), network.shapes[node])
        for at, node in enumerate(inputs)
    }


def add_outputs(
    graph: fx.Graph, network: TracedNetwork, span: LayerSpan, made: Mapping[fx.Node, fx.Node]
) -> None:
    """End a piece's graph with what it gives: maps, or logits at the end of the network.

    Maps are given in the format in which maps came, as messages carry them: so stages and one
    process round alike where an operator gives a wider one.
    """
    if span.last == len(network.operators):
        results = [made[node] for node in span.outputs]
    else:
        given = next(node for node in graph.nodes if node.op == "placeholder")
        maps = (_as_map(graph, made[node], network.shapes[node]) for node in span.outputs)
        results = [graph.call_function(_in_format, (one, given)) for one in maps]
    graph.output(results[0] if len(results) == 1 else tuple(results))


def _in_format(values: torch.Tensor, given: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """Return values in the number format of what was given."""
    return values.to(given.dtype if isinstance(given, torch.Tensor) else given[0].dtype)


def _shaped(graph: fx.Graph, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    """Return a map in a tensor's own shape; of three sides it is as it is."""
    return node if len(shape) == 3 else graph.call_method("reshape", (node, -1, *shape))


def _as_map(graph: fx.Graph, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    if len(shape) == 3:
        return node
    return graph.call_method("reshape", (node, -1, *to_map(shape).shape))


def to_map(shape: Sequence[int]) -> Map:
    """Return the shape of a tensor of one image as a map's: of other than three sides a vector."""
    return Map(*shape) if len(shape) == 3 else Map(prod(shape), 1, 1)
