"""The subject of a profile: a model, made layer by layer and as a whole, with its input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from spbench_core.catalog.typed_params import read_params
from spbench_core.models.layers import Model
from spbench_core.models.parts import Map
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
        names: The names of its layers, in a row.
        layers: The layers, each a module of its own.
        whole: The model as one module, of the same weights.
        parameters: The number of its parameters, counted independently of the layers.
        pixels: Returns the input of a number of images.
        loss: Returns the loss of the last layer's output.
        made: By layer, which of its outputs it makes, by their places; the others came as they are.
            None: all of them.
        skips: Layers, one that makes an output and one that reads it, with others between.
    """

    names: tuple[str, ...]
    layers: tuple[nn.Module, ...]
    whole_model: nn.Module
    parameters: int
    make_images: Callable[[int], torch.Tensor]
    loss: Loss
    made_outputs: tuple[tuple[int, ...], ...] | None = None
    skips: tuple[tuple[int, int], ...] = ()


def load_subject(params: dict[str, Any], device: torch.device, seed: int) -> ProfiledModel:
    """Return the model that the parameters of ``model.profile`` name.

    Raises:
        CannotRunError: A model of the user's own cannot be imported, or cut into layers.
    """
    profile = read_params(ProfileParams, params)
    name = profile.model
    precision = PRECISIONS[profile.precision]
    if name in BUILTIN_MODELS:
        return _of_layers(build_known_model(name, params), precision, device, seed)
    torch.manual_seed(seed)
    model = _made(name, profile.network_args or {})
    if isinstance(model, nn.Module):
        return _of_layers(_imported(name, model, profile.image_size), precision, device, seed)
    return _given(name, model, precision, device)


def _imported(name: str, module: nn.Module, image_size: tuple[int, int] | None) -> ImportedModel:
    if image_size is None:
        raise CannotRunError(f"model {name}: say of which images, as by --set image_size=224")
    return build_model(trace_network(name, module, Map(CHANNELS, *image_size)))


def _of_layers(
    model: Model, precision: Precision, device: torch.device, seed: int
) -> ProfiledModel:
    random = torch.Generator().manual_seed(seed)

    def built(first: int, last: int) -> nn.Sequential:
        return build_stage(
            model, first, last, DenseBuilder(), seed=seed, device=device, dtype=precision.weights
        )

    def pixels(count: int) -> torch.Tensor:
        data = model.image
        shape = (count, data.channels, data.height, data.width)
        return torch.randn(shape, generator=random).to(device, precision.work)

    def loss(outputs: TensorTuple) -> torch.Tensor:
        logits = outputs[0].to(torch.promote_types(outputs[0].dtype, torch.float32))
        classes = torch.zeros_like(logits[:, 0], dtype=torch.int64)
        return functional.cross_entropy(logits, classes, reduction="sum") / classes[0].numel()

    count = len(model.layers)
    table = build_tensor_table(model)
    return ProfiledModel(
        tuple(layer.name for layer in model.layers),
        tuple(built(index, index + 1) for index in range(count)),
        built(0, count),
        model.parameters,
        pixels,
        loss,
        tuple(
            tuple(at for at, number in enumerate(alive) if table.makers[number] == index)
            for index, alive in enumerate(table.layer_inputs[1:])
        ),
        _skips(table),
    )


def _skips(table: TensorTable) -> tuple[tuple[int, int], ...]:
    pairs = zip(table.makers, table.readers, strict=True)
    found = {(maker, reader) for maker, readers in pairs for reader in readers}
    return tuple(sorted((maker, reader) for maker, reader in found if reader - maker > 1))


def _given(name: str, made: object, precision: Precision, device: torch.device) -> ProfiledModel:
    whole, example = _checked(name, made)
    whole = whole.to(device, precision.weights)
    children = list(whole.named_children())

    def pixels(count: int) -> torch.Tensor:
        rows = torch.arange(count) % len(example)
        images = example[rows].to(device)
        return images.to(precision.work) if images.is_floating_point() else images

    def loss(outputs: TensorTuple) -> torch.Tensor:
        return torch.stack([output.float().sum() for output in outputs]).sum()

    return ProfiledModel(
        tuple(name for name, _ in children),
        tuple(module for _, module in children),
        whole,
        sum(parameter.numel() for parameter in whole.parameters()),
        pixels,
        loss,
    )


def _made(name: str, arguments: dict[str, Any]) -> object:
    """Return what the user's callable returns."""
    try:
        return call_by_name(name, arguments)
    except Exception as error:  # it is the user's own code
        raise CannotRunError(
            f"model {name}: {find_user_line(error)}{describe_error(error)}"
        ) from error


def _checked(name: str, made: object) -> tuple[nn.Sequential, torch.Tensor]:
    pair = made if isinstance(made, tuple) and len(made) == 2 else (None, None)
    whole, example = pair
    if not isinstance(whole, nn.Sequential) or not isinstance(example, torch.Tensor):
        raise CannotRunError(
            f"model {name}: it must return an nn.Module, or an nn.Sequential and its input, a "
            "tensor of images"
        )
    if not len(whole) or not example.dim() or not len(example):
        raise CannotRunError(f"model {name}: the nn.Sequential or its input is empty")
    return whole, example
