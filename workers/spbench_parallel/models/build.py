"""Building of pipeline stages: the layers of a rank as one module."""

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

    Its initial parameters are determined by the seed, the layers' names and the model. Therefore
    the stages together have the parameters of the whole model, for any builder. Names in
    ``state_dict`` are "<layer>.<...>". Parameters are drawn on the CPU in fp32, layer by layer, and
    then converted.

    Its input and output are a tensor ``batch x channels x rows x cols``, or a tuple of two if
    ``model.flows[first]`` or ``model.flows[last]`` has two maps. The last layer returns logits,
    ``batch x classes``.

    Args:
        model: The model.
        first: The first layer of the stage.
        last: One past its last layer.
        builder: Builds its operators.
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
    return sequential(
        {
            model.layers[index].name: _build_layer(model, index, builder, seed).to(device, dtype)
            for index in range(first, last)
        }
    )


def build_reference(model: Model, *, seed: int, device: torch.device | str) -> nn.Module:
    """Return a whole model in float64, in training mode; see `build_stage`.

    For an imported network it is a copy of the user's module.
    """
    if isinstance(model, ImportedModel):
        return model.build_whole(device)
    layer_count = len(model.layers)
    dense = DenseBuilder()
    return build_stage(model, 0, layer_count, dense, seed=seed, device=device, dtype=torch.float64)


def free_operators(stage: nn.Module) -> None:
    """Free the buffers and requests of all operators.

    All ranks of their tiles must call it.

    The stage creates new ones when it is used again.
    """
    for module in stage.modules():
        free_operator = getattr(module, "free", None)
        if free_operator is not None:
            free_operator()


def _build_layer(model: Model, index: int, builder: Builder[nn.Module], seed: int) -> nn.Module:
    layer: Layer = model.layers[index]
    text = repr((seed, layer.name)).encode()
    layer_seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
    with torch.random.fork_rng(devices=[]):
        # Only the CPU generator: torch.manual_seed would also change those of GPUs.
        torch.default_generator.manual_seed(layer_seed)
        return layer.build(builder, model.flows[index])
