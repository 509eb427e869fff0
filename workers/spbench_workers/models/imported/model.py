"""An imported network as a model: layers whose modules are pieces of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from spbench_core.layout.tiles import Box
from spbench_core.models.layers import Flow, Layer, Model
from spbench_core.models.parts import Builder, M, Map
from spbench_core.models.routes import tensors_of
from spbench_workers.errors import CannotRunError
from spbench_workers.models.imported.chance import DropByPosition
from spbench_workers.models.imported.cuts import LayerSpan, spans
from spbench_workers.models.imported.loading import loaded, take_weights
from spbench_workers.models.imported.tracing import Operator, Traced, attribute, traced

_CLASSES = 2
"""The fewest classes between which a loss can tell."""


@dataclass(frozen=True, eq=False)
class ImportedPiece:
    """A piece of an imported network: what a stage computes by itself.

    Attributes:
        network: The network.
        span: The operators.
    """

    network: Traced = field(repr=False)
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
    def read(self) -> Sequence[tuple[Map, bool]]:
        """The maps that its operators read, and whether they are normalised."""
        return [
            (
                map_of(shape),
                isinstance(self.network.called(each.node), nn.modules.batchnorm._BatchNorm),
            )
            for each in self.operators
            for node in each.node.all_input_nodes
            if (shape := self.network.shapes.get(node))
        ]

    def paths(self) -> list[str]:
        """Return the paths of parameters and running statistics, as in the user's state_dict."""
        return [*self._tensors("parameters"), *self._tensors("buffers")]

    def module(self) -> fx.GraphModule:
        """Return a new module of it, with the weights that the network was loaded with.

        It takes and gives a tensor ``batch x channels x rows x cols``, or a tuple of several.
        """
        graph, span, ours = fx.Graph(), self.span, dict[str, Any]()
        made = with_shape(graph, self.network, span.inputs)
        for each in self.operators:
            for node in each.node.all_input_nodes:
                if node.op != "get_attr" or node in made:
                    continue
                if self.network.is_constant(node):
                    made[node] = with_constant(graph, ours, self.network, node)
                else:
                    made[node] = graph.node_copy(node)
            if each.node in self.network.chance:
                path, (source, *_) = f"dropped_{each.node.name}", each.node.all_input_nodes
                ours[path] = drop_of(self.network, each.node)
                made[each.node] = graph.call_module(path, (made[source],))
            else:
                made[each.node] = graph.node_copy(each.node, made.__getitem__)
        with_map_outputs(graph, self.network, span, made)
        root = {
            str(node.target): copied(self.network, str(node.target))
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
            module = self.network.called(each.node)
            if module is not None:
                named = getattr(module, f"named_{kind}")()
                found |= {f"{each.node.target}.{name}": tensor for name, tensor in named}
            for node in each.node.all_input_nodes:
                if node.op == "get_attr" and not self.network.is_constant(node):
                    tensor = attribute(self.network.module, str(node.target))
                    if isinstance(tensor, wanted) and (
                        kind == "parameters" or not isinstance(tensor, nn.Parameter)
                    ):
                        found[str(node.target)] = tensor
        return found


def copied(network: Traced, path: str) -> Any:
    """Return a copy of a network's module or tensor; what it gets it does not write into."""
    made = copy.deepcopy(attribute(network.module, path))
    if getattr(made, "inplace", False):
        made.inplace = False  # what a layer gets belongs to the layer before
    return made


def drop_of(
    network: Traced, node: fx.Node, box: Box | None = None, *, channels_last: bool = False
) -> DropByPosition:
    """Return a rank's operator of chance, of whole maps or of this box of them."""
    words = network.chance[node], network.shapes[node], box
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


def with_constant(graph: fx.Graph, root: dict[str, Any], network: Traced, node: fx.Node) -> fx.Node:
    """Return a constant in a piece's graph, and add its module to the root of them."""
    path = f"constant_{node.name}"
    root[path] = Constant(attribute(network.module, str(node.target)))
    given = next(one for one in graph.nodes if one.op == "placeholder")
    return graph.call_module(path, (given,))


def with_shape(
    graph: fx.Graph, network: Traced, inputs: Sequence[fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Return the tensors that a piece gets, by node, in the shapes that its operators ask for."""
    given = graph.placeholder("maps")
    if len(inputs) == 1:
        return {inputs[0]: _shaped(graph, given, network.shapes[inputs[0]])}
    return {
        node: _shaped(graph, graph.call_method("__getitem__", (given, at)), network.shapes[node])
        for at, node in enumerate(inputs)
    }


def with_map_outputs(
    graph: fx.Graph, network: Traced, span: LayerSpan, made: Mapping[fx.Node, fx.Node]
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
    return graph.call_method("reshape", (node, -1, *map_of(shape).shape))


def map_of(shape: Sequence[int]) -> Map:
    """Return the shape of a tensor of one image as a map's: of other than three sides a vector."""
    return Map(*shape) if len(shape) == 3 else Map(prod(shape), 1, 1)


@dataclass(frozen=True, slots=True)
class ImportedLayer(Layer):
    """A layer of an imported network."""

    name: str
    piece: ImportedPiece
    outputs: Flow

    def output(self, flow: Flow) -> Flow:
        return self.outputs

    def build(self, builder: Builder[M], flow: Flow) -> M:
        return builder.piece(self.piece)

    def unnamed(self) -> Layer:
        return self

    def reads(self, inputs: int) -> Sequence[int]:
        used = {node for each in self.piece.operators for node in each.node.all_input_nodes}
        return [at for at, node in enumerate(self.piece.span.inputs) if node in used]

    def passes(self, outputs: int) -> Sequence[int | None]:
        places = {node: at for at, node in enumerate(self.piece.span.inputs)}
        return [places.get(node) for node in self.piece.span.outputs]

    def without(self, inputs: Collection[fx.Node], outputs: Collection[fx.Node]) -> ImportedLayer:
        """Return it with these left out of what it gets, and those of what it gives."""
        span = self.piece.span
        kept = tuple(node for node in span.inputs if node not in inputs)
        given = tuple(node for node in span.outputs if node not in outputs)
        flow = tuple(map_of(self.piece.network.shapes[node]) for node in given)
        piece = replace(self.piece, span=replace(span, inputs=kept, outputs=given))
        return replace(self, piece=piece, outputs=flow)


@dataclass(frozen=True)
class ImportedModel(Model):
    """A network of the user's own, for images of one size.

    Attributes:
        network: It as it was traced.
    """

    network: Traced = field(repr=False, compare=False)

    def whole(self, device: torch.device | str = "cpu") -> nn.Module:
        """Return the user's module itself in float64, with the names of the layers' parts."""
        module = copy.deepcopy(self.network.module).to(device, torch.float64)
        return _Whole(module, self.owners()).train()

    def resized(self, height: int, width: int) -> ImportedModel:
        """Return the same network, with the same layers, for images of another size.

        Raises:
            CannotRunError: It cannot take such images.
        """
        image = Map(self.image.channels, height, width)
        network = traced(self.network.name, self.network.module, image)
        cuts = [layer.piece.span.first for layer in self.layers if isinstance(layer, ImportedLayer)]
        return as_model(network, cuts[1:])

    def without(self, first: int, last: int, left_out: Collection[int]) -> ImportedModel:
        if not left_out:
            return self
        nodes = self._nodes(first, left_out)
        layers = list(self.layers)
        for index in range(max(first - 1, 0), last):
            layer = layers[index]
            assert isinstance(layer, ImportedLayer), "there are no others"
            layers[index] = layer.without(() if index < first else nodes, nodes)
        return replace(self, layers=tuple(layers))

    def _nodes(self, layer: int, numbers: Collection[int]) -> set[fx.Node]:
        """Return the nodes of some of a layer's inputs."""
        own = self.layers[layer]
        assert isinstance(own, ImportedLayer), "there are no others"
        pairs = zip(tensors_of(self).alive[layer], own.piece.span.inputs, strict=True)
        return {node for number, node in pairs if number in numbers}

    def owners(self) -> dict[str, str]:
        """Return the names of parameters and running statistics in the layers, by the user's."""
        return {
            path: f"{layer.name}.{path}"
            for layer in self.layers
            if isinstance(layer, ImportedLayer)
            for path in layer.piece.paths()
        }


def imported(
    network: str, arguments: Mapping[str, Any], image: Map, seed: int, weights: str | None = None
) -> ImportedModel:
    """Load a network of the user's own, and cut it into layers.

    Args:
        network: ``module:callable``.
        arguments: All that it is given.
        image: The shape of an image.
        seed: The seed of its weights.
        weights: A file with its ``state_dict``, in place of the weights that the seed draws.

    Raises:
        CannotRunError: It cannot be loaded or traced, or gives no logits; all in one sentence.
    """
    module = loaded(network, arguments, seed)
    if weights is not None:
        take_weights(network, module, Path(weights))
    return as_model(traced(network, module, image))


def as_model(network: Traced, cuts: Sequence[int] | None = None) -> ImportedModel:
    """Return a traced network as a model, with cuts before these operators, or wherever it can be.

    Raises:
        CannotRunError: It gives no logits of images or pixels, or a parameter does not learn.
    """
    _check(network)
    found = spans(network, cuts)
    layers: list[Layer] = []
    for at, span in enumerate(found):
        outputs = tuple(map_of(network.shapes[node]) for node in span.outputs)
        nodes = [each.node for each in network.operators[span.first : span.last]]
        code = "; ".join(node.format_node() or node.name for node in nodes)
        layers.append(ImportedLayer(_name(at, nodes), ImportedPiece(network, span, code), outputs))
    return ImportedModel(network.name, network.image, tuple(layers), network)


def _name(at: int, nodes: Sequence[fx.Node]) -> str:
    """Return a layer's name: its number, and the path of its first module in the user's network."""
    paths = (str(node.target) for node in nodes if node.op == "call_module")
    word = next(paths, nodes[0].name if nodes else "nothing")
    return f"{at:03}_{word.replace('.', '_')}"


def _check(network: Traced) -> None:
    (end,) = (node for node in network.graph.nodes if node.op == "output")
    result = end.args[0]
    shape = network.shapes.get(result)
    image = list(network.image.shape[1:])
    if shape is None or not (len(shape) == 1 or list(shape[1:]) == image):
        told = "no tensor with a row for each image" if shape is None else f"maps of {list(shape)}"
        raise CannotRunError(
            f"network {network.name}: it gives {told}, and must give logits, batch x classes, or "
            f"batch x classes x {image[0]} x {image[1]} to segment"
        )
    if shape[0] < _CLASSES:
        raise CannotRunError(
            f"network {network.name}: it gives the logits of one class, and cross entropy is 0 "
            "whatever they are; give one for each of two classes"
        )
    frozen = [name for name, one in network.module.named_parameters() if not one.requires_grad]
    if frozen:
        raise CannotRunError(
            f"network {network.name}: {frozen[0]} does not learn (requires_grad is off); "
            "let all parameters learn"
        )


class _Whole(nn.Module):
    """A user's module whose parameters and running statistics have the names of layers' parts."""

    def __init__(self, module: nn.Module, owners: Mapping[str, str]) -> None:
        super().__init__()
        # In a tuple, so that torch does not register them under their own names too.
        self._own = (module,)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for path, name in owners.items():
            *folders, last = name.split(".")
            place: nn.Module = self
            for folder in folders:
                if folder not in dict(place.named_children()):
                    place.add_module(folder, nn.Module())
                place = place.get_submodule(folder)
            tensor = tensors[path]
            if isinstance(tensor, nn.Parameter):
                place.register_parameter(last, tensor)
            else:
                place.register_buffer(last, tensor)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        made = self._own[0](images)
        logits: torch.Tensor = made["out"] if isinstance(made, dict) else made
        return logits

    def train(self, mode: bool = True) -> _Whole:
        """Set the mode of the user's module too."""
        self._own[0].train(mode)
        return super().train(mode)
