"""An imported network as a model: layers whose modules are pieces of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from spbench_core.models.layers import Flow, Layer, Model
from spbench_core.models.parts import Builder, M, Map
from spbench_core.models.routes import build_tensor_table
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.cuts import find_layer_spans
from spbench_parallel.models.imported.hooks import check_copies
from spbench_parallel.models.imported.loading import load_network, load_weights
from spbench_parallel.models.imported.pieces import ImportedPiece, to_map
from spbench_parallel.models.imported.state import tensors_by_name
from spbench_parallel.models.imported.tracing import TracedNetwork, list_targets, trace_network

_CLASSES = 2
"""The fewest classes between which a loss can tell."""


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

    def drop_name(self) -> Layer:
        return self

    def list_read_inputs(self, inputs: int) -> Sequence[int]:
        used = {node for each in self.piece.operators for node in each.node.all_input_nodes}
        return [at for at, node in enumerate(self.piece.span.inputs) if node in used]

    def list_passed_inputs(self, outputs: int) -> Sequence[int | None]:
        places = {node: at for at, node in enumerate(self.piece.span.inputs)}
        return [places.get(node) for node in self.piece.span.outputs]

    def without(self, inputs: Collection[fx.Node], outputs: Collection[fx.Node]) -> ImportedLayer:
        """Return it with these left out of what it gets, and those of what it gives."""
        span = self.piece.span
        kept = tuple(node for node in span.inputs if node not in inputs)
        given = tuple(node for node in span.outputs if node not in outputs)
        flow = tuple(to_map(self.piece.network.shapes[node]) for node in given)
        piece = replace(self.piece, span=replace(span, inputs=kept, outputs=given))
        return replace(self, piece=piece, outputs=flow)


@dataclass(frozen=True)
class ImportedModel(Model):
    """A network of the user's own, for images of one size.

    Attributes:
        network: It as it was traced.
    """

    network: TracedNetwork = field(repr=False, compare=False)

    def build_whole(self, device: torch.device | str = "cpu") -> nn.Module:
        """Return the user's module itself in float64, with the names of the layers' parts."""
        module = copy.deepcopy(self.network.module).to(device, torch.float64)
        return WholeModule(module, self.owners()).train()

    def resized(self, height: int, width: int) -> ImportedModel:
        """Return the same network, with the same layers, for images of another size.

        Raises:
            CannotRunError: It cannot take such images.
        """
        image = Map(self.image.channels, height, width)
        network = trace_network(self.network.name, self.network.module, image, advises=False)
        if list_targets(network) != list_targets(self.network):
            raise CannotRunError(
                f"network {self.name}: it has other operators for images of {height}x{width}"
            )
        cuts = [layer.piece.span.first for layer in self.layers if isinstance(layer, ImportedLayer)]
        return build_model(network, cuts[1:])

    def drop_tensors(self, first: int, last: int, left_out: Collection[int]) -> ImportedModel:
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
        pairs = zip(
            build_tensor_table(self).layer_inputs[layer], own.piece.span.inputs, strict=True
        )
        return {node for number, node in pairs if number in numbers}

    def owners(self) -> dict[str, str]:
        """Return the names of parameters and running statistics in the layers, by the user's."""
        return {
            path: f"{layer.name}.{path}"
            for layer in self.layers
            if isinstance(layer, ImportedLayer)
            for path in layer.piece.paths()
        }


def import_network(
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
    module = load_network(network, arguments, seed)
    check_copies(network, module)
    if weights is not None:
        load_weights(network, module, Path(weights))
    return build_model(trace_network(network, module, image))


def build_model(network: TracedNetwork, cuts: Sequence[int] | None = None) -> ImportedModel:
    """Return a traced network as a model, with cuts before these operators, or wherever it can be.

    Raises:
        CannotRunError: It gives no logits of images or pixels, or a parameter does not learn.
    """
    _check(network)
    found = find_layer_spans(network, cuts)
    layers: list[Layer] = []
    for at, span in enumerate(found):
        outputs = tuple(to_map(network.shapes[node]) for node in span.outputs)
        nodes = [each.node for each in network.operators[span.first : span.last]]
        code = "; ".join(node.format_node() or node.name for node in nodes)
        layers.append(ImportedLayer(_name(at, nodes), ImportedPiece(network, span, code), outputs))
    return ImportedModel(network.name, network.image, tuple(layers), network)


def _name(at: int, nodes: Sequence[fx.Node]) -> str:
    """Return a layer's name: its number, and the path of its first module in the user's network."""
    paths = (str(node.target) for node in nodes if node.op == "call_module")
    word = next(paths, nodes[0].name if nodes else "nothing")
    return f"{at:03}_{word.replace('.', '_')}"


def _check(network: TracedNetwork) -> None:
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


def get_user_state(whole: nn.Module) -> dict[str, torch.Tensor]:
    """Return the ``state_dict`` of the user's module in what `ImportedModel.whole` returned.

    The result is empty for other models.
    """
    return whole.module.state_dict() if isinstance(whole, WholeModule) else {}


class WholeModule(nn.Module):
    """A user's module whose parameters and running statistics have the names of layers' parts."""

    def __init__(self, module: nn.Module, owners: Mapping[str, str]) -> None:
        super().__init__()
        # In a tuple, so that torch does not register them under their own names too.
        self._own = (module,)
        tensors = tensors_by_name(module)
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

    @property
    def module(self) -> nn.Module:
        """The user's module."""
        return self._own[0]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        made = self._own[0](images)
        logits: torch.Tensor = made["out"] if isinstance(made, dict) else made
        return logits

    def train(self, mode: bool = True) -> WholeModule:
        """Set the mode of the user's module too."""
        self._own[0].train(mode)
        return super().train(mode)
