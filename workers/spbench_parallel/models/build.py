"""Building of pipeline stages: the layers that a rank owns, and no others, as one module."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from spbench_core.models.layers import Layer, Model
from spbench_core.models.parts import Builder
from spbench_parallel.models.builders import DenseBuilder, ModuleBuilder
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.modules import sequential


def build_stage(
    model: Model,
    first: int,
    last: int,
    builder: ModuleBuilder,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """Return some of a model's layers as a module, in training mode.

    Its initial parameters follow from the seed, the layers' names and the model alone: those of all
    stages together are those of the whole model, whatever the builders. So are their names in
    ``state_dict``, "<layer>.<...>". They are drawn on the CPU in fp32, one layer at a time, and
    then converted.

    It takes and gives a tensor ``batch x channels x rows x cols``, or a tuple of two, where
    ``model.flows[first]`` and ``model.flows[last]`` have two maps; the last layer gives logits,
    ``batch x classes``.

    Args:
        model: The model.
        first: The first layer of the stage.
        last: One past its last layer.
        builder: Makes its operators.
        seed: The seed of the whole model.
        device: The device of the parameters.
        dtype: The number format of the parameters.

    Raises:
        ValueError: The model has no such layers.
    """
    if not 0 <= first < last <= len(model.layers):
        raise ValueError(
            f"{model.name} has no layers {first} to {last - 1}; it has {len(model.layers)} layers, "
            "numbered from 0"
        )
    places = range(first, last)
    return sequential(
        {
            model.layers[index].name: _seeded(model, index, builder, seed).to(device, dtype)
            for index in places
        }
    )


def build_reference(model: Model, *, seed: int, device: torch.device | str) -> nn.Module:
    """Return a whole model in float64, in training mode; see `build_stage`.

    Of an imported network it is the user's own module, of which no layer was made.
    """
    if isinstance(model, ImportedModel):
        return model.build_whole(device)
    end = len(model.layers)
    dense = DenseBuilder()
    return build_stage(model, 0, end, dense, seed=seed, device=device, dtype=torch.float64)


def free(stage: nn.Module) -> None:
    """Free the buffers and requests of all operators. All ranks of their tiles must call it.

    The stage makes new ones when it is used again.
    """
    for module in stage.modules():
        give_back = getattr(module, "free", None)
        if give_back is not None:
            give_back()


def _seeded(model: Model, index: int, builder: Builder[nn.Module], seed: int) -> nn.Module:
    layer: Layer = model.layers[index]
    text = repr((seed, layer.name)).encode()
    drawn = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
    with torch.random.fork_rng(devices=[]):
        # Of the CPU alone: torch.manual_seed would change what a GPU draws next.
        torch.default_generator.manual_seed(drawn)
        return layer.build(builder, model.flows[index])
