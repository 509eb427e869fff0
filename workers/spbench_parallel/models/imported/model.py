"""Imported networks as models: layers built from pieces of a user's network."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from spbench_core.models.layers import Flow, Layer, Model
from spbench_core.models.parts import Builder, M, MapShape
from spbench_core.models.routes import build_tensor_table
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.cuts import find_layer_spans
from spbench_parallel.models.imported.hooks import check_copies
from spbench_parallel.models.imported.loading import load_network, load_weights
from spbench_parallel.models.imported.pieces import ImportedPiece, to_map
from spbench_parallel.models.imported.state import list_tensors_by_name
from spbench_parallel.models.imported.tracing import TracedNetwork, list_targets, trace_network

_MIN_CLASSES = 2  # with one class, cross entropy is always 0


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
        used = {node for operator in self.piece.operators for node in operator.node.all_input_nodes}
        return [index for index, node in enumerate(self.piece.span.inputs) if node in used]

    def list_passed_inputs(self, outputs: int) -> Sequence[int | None]:
        index_by_input = {node: index for index, node in enumerate(self.piece.span.inputs)}
        return [index_by_input.get(node) for node in self.piece.span.outputs]

    def drop_nodes(
        self, inputs: Collection[fx.Node], outputs: Collection[fx.Node]
    ) -> ImportedLayer:
        """Return the layer without some of its inputs and outputs."""
        span = self.piece.span
        remaining_inputs = tuple(node for node in span.inputs if node not in inputs)
        remaining_outputs = tuple(node for node in span.outputs if node not in outputs)
        flow = tuple(to_map(self.piece.network.shapes[node]) for node in remaining_outputs)
        piece = replace(
            self.piece, span=replace(span, inputs=remaining_inputs, outputs=remaining_outputs)
        )
        return replace(self, piece=piece, outputs=flow)


@dataclass(frozen=True)
class ImportedModel(Model):
    """A user's network as a model, for images of one size.

    Attributes:
        network: The traced network.
    """

    network: TracedNetwork = field(repr=False, compare=False)

    def build_whole(self, device: torch.device | str = "cpu") -> nn.Module:
        """Return a copy of the user's module in float64.

        Its parameters have the names of the layers' parameters.
        """
        module = copy.deepcopy(self.network.module).to(device, torch.float64)
        return WholeModule(module, self.map_layer_names()).train()

    def resized(self, height: int, width: int) -> ImportedModel:
        """Return the same network, with the same layers, for images of another size.

        Raises:
            CannotRunError: It cannot take such images.
        """
        image = MapShape(self.image.channels, height, width)
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
        nodes = self._find_input_nodes(first, left_out)
        layers = list(self.layers)
        for index in range(max(first - 1, 0), last):
            layer = layers[index]
            assert isinstance(layer, ImportedLayer), "an ImportedModel has only imported layers"
            layers[index] = layer.drop_nodes(() if index < first else nodes, nodes)
        return replace(self, layers=tuple(layers))

    def _find_input_nodes(self, layer_index: int, tensor_numbers: Collection[int]) -> set[fx.Node]:
        """Return the nodes of some of a layer's inputs."""
        imported_layer = self.layers[layer_index]
        assert isinstance(imported_layer, ImportedLayer), (
            "an ImportedModel has only imported layers"
        )
        pairs = zip(
            build_tensor_table(self).layer_inputs[layer_index],
            imported_layer.piece.span.inputs,
            strict=True,
        )
        return {node for number, node in pairs if number in tensor_numbers}

    def map_layer_names(self) -> dict[str, str]:
        """Return the layers' names of parameters and statistics, by the user's names."""
        return {
            path: f"{layer.name}.{path}"
            for layer in self.layers
            if isinstance(layer, ImportedLayer)
            for path in layer.piece.paths()
        }


def import_network(
    network: str,
    arguments: Mapping[str, Any],
    image: MapShape,
    seed: int,
    weights: str | None = None,
) -> ImportedModel:
    """Load a user's network, and cut it into layers.

    Args:
        network: ``module:callable``.
        arguments: The keyword arguments of the callable.
        image: The shape of an image.
        seed: The seed of its weights.
        weights: A file with its ``state_dict``, to load instead of the seed's weights.

    Raises:
        CannotRunError: It cannot be loaded or traced, or does not return logits.
    """
    module = load_network(network, arguments, seed)
    check_copies(network, module)
    if weights is not None:
        load_weights(network, module, Path(weights))
    return build_model(trace_network(network, module, image))


def build_model(network: TracedNetwork, cuts: Sequence[int] | None = None) -> ImportedModel:
    """Return a traced network as a model, with cuts before the given operators.

    By default it is cut at all possible positions.

    Raises:
        CannotRunError: It does not return logits of images or pixels, or a parameter is frozen.
    """
    _check_output(network)
    spans = find_layer_spans(network, cuts)
    layers: list[Layer] = []
    for index, span in enumerate(spans):
        outputs = tuple(to_map(network.shapes[node]) for node in span.outputs)
        nodes = [operator.node for operator in network.operators[span.first : span.end]]
        code = "; ".join(node.format_node() or node.name for node in nodes)
        layers.append(
            ImportedLayer(_layer_name(index, nodes), ImportedPiece(network, span, code), outputs)
        )
    return ImportedModel(network.name, network.image, tuple(layers), network)


def _layer_name(index: int, nodes: Sequence[fx.Node]) -> str:
    """Return a layer's name: its index, and the path of its first module."""
    paths = (str(node.target) for node in nodes if node.op == "call_module")
    name = next(paths, nodes[0].name if nodes else "nothing")
    return f"{index:03}_{name.replace('.', '_')}"


def _check_output(network: TracedNetwork) -> None:
    (output_node,) = (node for node in network.graph.nodes if node.op == "output")
    logits_node = output_node.args[0]
    shape = network.shapes.get(logits_node)
    image_sides = list(network.image.shape[1:])
    if shape is None or not (len(shape) == 1 or list(shape[1:]) == image_sides):
        description = (
            "no tensor with a row for each image" if shape is None else f"maps of {list(shape)}"
        )
        raise CannotRunError(
            f"network {network.name}: it gives {description}, and must give logits, batch x "
            f"classes, or batch x classes x {image_sides[0]} x {image_sides[1]} to segment"
        )
    if shape[0] < _MIN_CLASSES:
        raise CannotRunError(
            f"network {network.name}: it gives the logits of one class, and cross entropy is 0 "
            "whatever they are; give one for each of two classes"
        )
    frozen_names = [
        name for name, parameter in network.module.named_parameters() if not parameter.requires_grad
    ]
    if frozen_names:
        raise CannotRunError(
            f"network {network.name}: {frozen_names[0]} does not learn (requires_grad is off); "
            "let all parameters learn"
        )


def get_user_state(reference: nn.Module) -> dict[str, torch.Tensor]:
    """Return the ``state_dict`` of the user's module in a result of `build_whole`.

    It is empty for other models.
    """
    return reference.module.state_dict() if isinstance(reference, WholeModule) else {}


class WholeModule(nn.Module):
    """A user's module with the parameter and statistics names of the layers."""

    def __init__(self, module: nn.Module, layer_names: Mapping[str, str]) -> None:
        super().__init__()
        # A tuple, so that torch does not also register parameters under their original names.
        self._user_module = (module,)
        tensor_by_user_name = list_tensors_by_name(module)
        for user_name, layer_name in layer_names.items():
            *folders, tensor_name = layer_name.split(".")
            owner: nn.Module = self
            for folder in folders:
                if folder not in dict(owner.named_children()):
                    owner.add_module(folder, nn.Module())
                owner = owner.get_submodule(folder)
            tensor = tensor_by_user_name[user_name]
            if isinstance(tensor, nn.Parameter):
                owner.register_parameter(tensor_name, tensor)
            else:
                owner.register_buffer(tensor_name, tensor)

    @property
    def module(self) -> nn.Module:
        """The user's module."""
        return self._user_module[0]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        output = self._user_module[0](images)
        logits: torch.Tensor = output["out"] if isinstance(output, dict) else output
        return logits

    def train(self, mode: bool = True) -> WholeModule:
        """Set the mode, also of the user's module."""
        self._user_module[0].train(mode)
        return super().train(mode)
