"""The subject of a profile: a model, made layer by layer and as a whole, with its input."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from spbench_core.catalog.model_profile import KNOWN
from spbench_core.catalog.models import model_of
from spbench_workers.errors import CannotRunError
from spbench_workers.models.build import build_stage
from spbench_workers.models.builders import DenseBuilder
from spbench_workers.parallel.layer_times import Tensors
from spbench_workers.parallel.precision.formats import PRECISIONS

Loss = Callable[[Tensors], torch.Tensor]


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
    """

    names: tuple[str, ...]
    layers: tuple[nn.Module, ...]
    whole: nn.Module
    parameters: int
    pixels: Callable[[int], torch.Tensor]
    loss: Loss


def subject_of(params: dict[str, Any], device: torch.device, seed: int) -> ProfiledModel:
    """Return the model that the parameters of ``model.profile`` name.

    Raises:
        CannotRunError: A model of the user's own cannot be imported, or is no row of layers.
    """
    random = torch.Generator().manual_seed(seed)
    if params["model"] in KNOWN:
        return _known(params, device, seed, random)
    return _given(params, device, seed)


def _known(
    params: dict[str, Any], device: torch.device, seed: int, random: torch.Generator
) -> ProfiledModel:
    model = model_of(params["model"], params)
    precision = PRECISIONS[params["precision"]]

    def built(first: int, last: int) -> nn.Sequential:
        return build_stage(
            model, first, last, DenseBuilder(), seed=seed, device=device, dtype=precision.weights
        )

    def pixels(count: int) -> torch.Tensor:
        data = model.image
        shape = (count, data.channels, data.height, data.width)
        return torch.randn(shape, generator=random).to(device, precision.work)

    def loss(outputs: Tensors) -> torch.Tensor:
        logits = outputs[0].to(torch.promote_types(outputs[0].dtype, torch.float32))
        classes = torch.zeros(len(logits), dtype=torch.int64, device=device)
        return functional.cross_entropy(logits, classes, reduction="sum")

    count = len(model.layers)
    return ProfiledModel(
        tuple(layer.name for layer in model.layers),
        tuple(built(index, index + 1) for index in range(count)),
        built(0, count),
        model.parameters,
        pixels,
        loss,
    )


def _given(params: dict[str, Any], device: torch.device, seed: int) -> ProfiledModel:
    torch.manual_seed(seed)
    name = params["model"]
    whole, example = _made(name)
    precision = PRECISIONS[params["precision"]]
    whole = whole.to(device, precision.weights)
    children = list(whole.named_children())

    def pixels(count: int) -> torch.Tensor:
        rows = torch.arange(count) % len(example)
        images = example[rows].to(device)
        return images.to(precision.work) if images.is_floating_point() else images

    def loss(outputs: Tensors) -> torch.Tensor:
        return torch.stack([output.float().sum() for output in outputs]).sum()

    return ProfiledModel(
        tuple(name for name, _ in children),
        tuple(module for _, module in children),
        whole,
        sum(parameter.numel() for parameter in whole.parameters()),
        pixels,
        loss,
    )


def _made(name: str) -> tuple[nn.Sequential, torch.Tensor]:
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module), function)()
    except Exception as error:  # it is the user's own code
        told = str(error).strip().splitlines() or ["no reason given"]
        raise CannotRunError(f"model {name}: {type(error).__name__}: {told[0]}") from error
    pair = made if isinstance(made, tuple) and len(made) == 2 else (None, None)
    whole, example = pair
    if not isinstance(whole, nn.Sequential) or not isinstance(example, torch.Tensor):
        raise CannotRunError(
            f"model {name}: it must return an nn.Sequential and its input, a tensor of images"
        )
    if not len(whole) or not example.dim() or not len(example):
        raise CannotRunError(f"model {name}: the nn.Sequential or its input is empty")
    return whole, example
