"""Model to profile: its layers, the whole model, and its input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from spbench_core.catalog.typed_params import read_params
from spbench_core.models.layers import Model
from spbench_core.models.parts import MapShape
from spbench_core.models.registry import CHANNELS
from spbench_core.models.routes import TensorTable, build_tensor_table
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.build import build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.models.imported.loading import call_by_name, describe_error, find_user_line
from spbench_parallel.models.imported.model import ImportedModel, build_model
from spbench_parallel.models.imported.tracing import trace_network
from spbench_parallel.precision.formats import PRECISIONS, Precision
from spbench_parallel.tensors import TensorTuple
from spbench_workers.benchmarks.model.profile.entry import BUILTIN_MODELS, ProfileParams
from spbench_workers.benchmarks.model.resolving import build_known_model

Loss = Callable[[TensorTuple], torch.Tensor]


@dataclass(frozen=True, slots=True)
class ProfiledModel:
    """A model to profile.

    Attributes:
        names: The names of its layers in order.
        layers: The layers as separate modules.
        whole_model: The model as one module with the same weights.
        parameters: The number of its parameters, counted independently of the layers.
        make_images: Returns the input for a number of images.
        compute_loss: Returns the loss of the last layer's output.
        made_outputs: The indices of outputs that each layer creates instead of passing them on;
            None if all.
        skips: Pairs of layers that create and read an output, with other layers between.
    """

    names: tuple[str, ...]
    layers: tuple[nn.Module, ...]
    whole_model: nn.Module
    parameters: int
    make_images: Callable[[int], torch.Tensor]
    compute_loss: Loss
    made_outputs: tuple[tuple[int, ...], ...] | None = None
    skips: tuple[tuple[int, int], ...] = ()


def load_subject(params: dict[str, Any], device: torch.device, seed: int) -> ProfiledModel:
    """Return the model of the parameters of ``model.profile``.

    Raises:
        CannotRunError: A user's model cannot be imported or divided into layers.
    """
    profile = read_params(ProfileParams, params)
    name = profile.model
    precision = PRECISIONS[profile.precision]
    if name in BUILTIN_MODELS:
        return _profile_layers(build_known_model(name, params), precision, device, seed)
    torch.manual_seed(seed)
    model = _call_user(name, profile.network_args or {})
    if isinstance(model, nn.Module):
        return _profile_layers(
            _trace_model(name, model, profile.image_size), precision, device, seed
        )
    return _profile_sequential(name, model, precision, device)


def _trace_model(name: str, module: nn.Module, image_size: tuple[int, int] | None) -> ImportedModel:
    if image_size is None:
        raise CannotRunError(f"model {name}: say of which images, as by --set image_size=224")
    return build_model(trace_network(name, module, MapShape(CHANNELS, *image_size)))


def _profile_layers(
    model: Model, precision: Precision, device: torch.device, seed: int
) -> ProfiledModel:
    generator = torch.Generator().manual_seed(seed)

    def build_layers(first: int, last: int) -> nn.Sequential:
        return build_stage(
            model, first, last, DenseBuilder(), seed=seed, device=device, dtype=precision.weights
        )

    def make_images(image_count: int) -> torch.Tensor:
        image = model.image
        shape = (image_count, image.channels, image.height, image.width)
        return torch.randn(shape, generator=generator).to(device, precision.work)

    def compute_loss(outputs: TensorTuple) -> torch.Tensor:
        logits = outputs[0].to(torch.promote_types(outputs[0].dtype, torch.float32))
        classes = torch.zeros_like(logits[:, 0], dtype=torch.int64)
        return functional.cross_entropy(logits, classes, reduction="sum") / classes[0].numel()

    layer_count = len(model.layers)
    table = build_tensor_table(model)
    return ProfiledModel(
        tuple(layer.name for layer in model.layers),
        tuple(build_layers(index, index + 1) for index in range(layer_count)),
        build_layers(0, layer_count),
        model.parameters,
        make_images,
        compute_loss,
        tuple(
            tuple(
                position for position, number in enumerate(alive) if table.makers[number] == index
            )
            for index, alive in enumerate(table.layer_inputs[1:])
        ),
        _list_skips(table),
    )


def _list_skips(table: TensorTable) -> tuple[tuple[int, int], ...]:
    pairs = zip(table.makers, table.readers, strict=True)
    maker_reader_pairs = {(maker, reader) for maker, readers in pairs for reader in readers}
    return tuple(
        sorted((maker, reader) for maker, reader in maker_reader_pairs if reader - maker > 1)
    )


def _profile_sequential(
    name: str, model_result: object, precision: Precision, device: torch.device
) -> ProfiledModel:
    sequential, example = _check_sequential(name, model_result)
    sequential = sequential.to(device, precision.weights)
    children = list(sequential.named_children())

    def make_images(count: int) -> torch.Tensor:
        rows = torch.arange(count) % len(example)
        images = example[rows].to(device)
        return images.to(precision.work) if images.is_floating_point() else images

    def compute_loss(outputs: TensorTuple) -> torch.Tensor:
        return torch.stack([output.float().sum() for output in outputs]).sum()

    return ProfiledModel(
        tuple(name for name, _ in children),
        tuple(module for _, module in children),
        sequential,
        sum(parameter.numel() for parameter in sequential.parameters()),
        make_images,
        compute_loss,
    )


def _call_user(name: str, arguments: dict[str, Any]) -> object:
    """Call the user's callable."""
    try:
        return call_by_name(name, arguments)
    except Exception as error:  # it is the user's own code
        raise CannotRunError(
            f"model {name}: {find_user_line(error)}{describe_error(error)}"
        ) from error


def _check_sequential(name: str, model_result: object) -> tuple[nn.Sequential, torch.Tensor]:
    pair = (
        model_result if isinstance(model_result, tuple) and len(model_result) == 2 else (None, None)
    )
    sequential, example = pair
    if not isinstance(sequential, nn.Sequential) or not isinstance(example, torch.Tensor):
        raise CannotRunError(
            f"model {name}: it must return an nn.Module, or an nn.Sequential and its input, a "
            "tensor of images"
        )
    if not len(sequential) or not example.dim() or not len(example):
        raise CannotRunError(f"model {name}: the nn.Sequential or its input is empty")
    return sequential, example
