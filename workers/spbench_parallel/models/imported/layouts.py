"""Checks that a layout of ranks supports an imported network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from torch import nn

from spbench_core.layout.balance import list_layer_ranges
from spbench_core.layout.stages import ModelLayout, Stage
from spbench_core.layout.tiles import Grid
from spbench_core.models.layers import Flow
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.hooks import has_estimate
from spbench_parallel.models.imported.messages import locate
from spbench_parallel.models.imported.mixing import MixingOperator, find_mixing_operators
from spbench_parallel.models.imported.model import ImportedLayer, ImportedModel
from spbench_parallel.models.imported.tiled_piece import build_tiled_piece
from spbench_parallel.spatial.tiling import Tiling


@dataclass(frozen=True, slots=True)
class StepSettings:
    """How the images of a step are distributed.

    Attributes:
        micro_batches: The number of micro-batches per step.
        sync_batchnorm: Whether batch normalisation spans all replicas.
        training: Whether the model is trained.
        recomputes: Whether activations are recomputed in the backward pass.
    """

    micro_batches: int = 1
    sync_batchnorm: bool = False
    training: bool = True
    recomputes: bool = False


def check_layout(
    model: ImportedModel,
    layout: ModelLayout,
    balance: Sequence[int] | None,
    step_settings: StepSettings,
) -> None:
    """Check that a layout computes the same as the network on one process.

    Args:
        model: The network.
        layout: The layout of ranks.
        balance: The layers of each stage; None if unknown.
        step_settings: How images are distributed.

    Raises:
        CannotRunError: It does not; the message has the line of the operator.
    """
    for grid in dict.fromkeys(stage.grid for stage in layout.stages if stage.spatial):
        stages = {stage for stage in layout.stages if stage.grid == grid}
        _check_tiles(model, grid, _find_layers(model, layout, balance, stages))
    stages_with_members = {stage for stage in layout.stages if stage.members > 1}
    shared_layers = _find_layers(model, layout, balance, stages_with_members)
    spans_replicas = step_settings.sync_batchnorm and layout.replicas > 1
    all_layers = range(len(model.layers))
    _check_norms(model, all_layers if spans_replicas else shared_layers)
    if step_settings.training and (step_settings.recomputes or layout.mirrored):
        _check_estimates(model, "mirrored pipelines" if layout.mirrored else "recompute")
    _check_mixing(model, all_layers if spans_replicas else shared_layers, step_settings)


def _find_layers(
    model: ImportedModel,
    layout: ModelLayout,
    balance: Sequence[int] | None,
    chosen: Collection[Stage],
) -> Collection[int]:
    """Return the layers of the chosen stages, as far as they are known.

    Without a balance, these are all layers if all stages are chosen, or the first and the last
    layer.
    """
    stages = layout.stages
    layer_count = len(model.layers)
    if balance is not None:
        stages_and_ranges = zip(stages, list_layer_ranges(balance), strict=True)
        return {
            layer
            for stage, layer_range in stages_and_ranges
            if stage in chosen
            for layer in range(*layer_range)
        }
    if all(stage in chosen for stage in stages):
        return range(layer_count)
    stage_by_end_layer = {0: stages[0], layer_count - 1: stages[-1]}
    return {layer for layer, stage in stage_by_end_layer.items() if stage in chosen}


def _check_tiles(model: ImportedModel, grid: Grid, layers: Collection[int]) -> None:
    """Build layers for one rank of a grid, without neighbours; unsupported ones raise."""
    stub_comm: Any = SimpleNamespace(rank=0, size=grid.size)
    image = model.network.image
    tiling = Tiling.of_grid(stub_comm, grid, image.height, image.width)
    for index in sorted(layers):
        layer = model.layers[index]
        assert isinstance(layer, ImportedLayer), "an ImportedModel has only imported layers"
        build_tiled_piece(layer.piece, tiling, _make_tiled_norm)


def _make_tiled_norm(module: nn.BatchNorm2d, tiling: Tiling) -> nn.Module:
    settings = module.eps, module.momentum, module.affine, module.track_running_stats
    return nn.BatchNorm2d(module.num_features, *settings)


def _check_norms(model: ImportedModel, layers: Collection[int]) -> None:
    """Reject normalisations that ranks cannot compute over each other's images."""
    for node in _list_nodes(model, layers):
        module = model.network.get_module(node)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            check_norm(f"network {model.name}: {locate(node)}", module)
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
            raise CannotRunError(
                f"network {model.name}: {locate(node)} keeps the mean of its images' statistics, "
                "and ranks have some of the images; take track_running_stats=False, or local_DP 1"
            )


def _check_estimates(model: ImportedModel, feature: str) -> None:
    """Reject spectral_norm if ranks call it in another order than one process."""
    for node in _list_nodes(model, range(len(model.layers))):
        module = model.network.get_module(node)
        if module is not None and has_estimate(module):
            raise CannotRunError(
                f"network {model.name}: {locate(node)} moves the estimate of its spectral_norm at "
                f"each call, and {feature} would call it in another order; take scheme lp without "
                "recompute"
            )


def _check_mixing(
    model: ImportedModel, shared_layers: Collection[int], step_settings: StepSettings
) -> None:
    """Reject operators that mix images of different ranks or micro-batches."""
    if not shared_layers and step_settings.micro_batches == 1:
        return
    shared_nodes = set(_list_nodes(model, shared_layers))
    for mixing in find_mixing_operators(model.network, training=step_settings.training):
        across_ranks = mixing.node in shared_nodes
        # A micro-batch is normalised separately, like by nn.BatchNorm2d.
        if across_ranks or (step_settings.micro_batches > 1 and not mixing.normalises):
            raise CannotRunError(_describe_mixing(model, mixing, across_ranks=across_ranks))


def _describe_mixing(model: ImportedModel, mixing: MixingOperator, *, across_ranks: bool) -> str:
    sharers = "ranks that share them" if across_ranks else "micro-batches"
    remedy = "take parts (micro_batches) 1"
    if across_ranks:
        remedy = "take local_DP (members) 1, and no sync_batchnorm"
    replacement = "nn.BatchNorm2d, which ranks compute together"
    remedy += f", or {replacement if mixing.normalises else 'compute each image by itself'}"
    return (
        f"network {model.name}: {locate(mixing.node)} mixes the images of a batch, and {sharers} "
        f"have some of them each; {remedy}"
    )


def _list_nodes(model: ImportedModel, layers: Collection[int]) -> list[Any]:
    nodes = []
    for index in sorted(layers):
        layer = model.layers[index]
        assert isinstance(layer, ImportedLayer), "an ImportedModel has only imported layers"
        nodes += [operator.node for operator in layer.piece.operators]
    return nodes


def check_norm(name: str, module: nn.Module) -> None:
    """Check that a batch norm is for images, with weights and running statistics.

    Raises:
        CannotRunError: It is another one.
    """
    is_supported = (
        isinstance(module, nn.BatchNorm2d) and module.affine and module.track_running_stats
    )
    if not is_supported or getattr(module, "momentum", None) is None:
        raise CannotRunError(
            f"{name}: ranks that share images normalise together, which works for BatchNorm2d "
            "with weights, running statistics and a momentum; take local_DP (members) 1, and no "
            "sync_batchnorm"
        )
    other_tensors = [key for key in module.state_dict() if key not in _NORM_TENSORS]
    if other_tensors:
        raise CannotRunError(
            f"{name}: computes its weights from {other_tensors[0]}, which ranks that share images "
            "cannot; take local_DP 1, or make it plain by torch's remove_parametrizations"
        )


_NORM_TENSORS = "weight", "bias", "running_mean", "running_var", "num_batches_tracked"


def check_stage_ends(model: ImportedModel, layout: ModelLayout) -> None:
    """Check that each tiled stage except the last can end in a layer with maps.

    Raises:
        CannotRunError: There is no such layer.
    """
    stage_end = 0
    stage_count = len(layout.stages)
    for index, stage in enumerate(layout.stages[:-1]):
        last_possible_end = len(model.layers) - (stage_count - index - 1)
        possible_ends = (
            layer
            for layer in range(stage_end + 1, last_possible_end + 1)
            if has_pixels(model.flows[layer], stage.grid)
        )
        stage_end = next(possible_ends, 0)
        if not stage_end:
            raise CannotRunError(
                f"network {model.name}: stage {index} of {stage.grid} tiles has to end in maps "
                "with a pixel for each, and there is no layer for that; take fewer stages or "
                "tiles, a larger image_size, or scheme lp"
            )


def has_pixels(flow: Flow, grid: Grid) -> bool:
    """Return whether maps have at least one pixel per tile."""
    return all(data.height >= grid.rows and data.width >= grid.cols for data in flow)
