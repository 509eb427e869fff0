"""Requirements of a layout of ranks on an imported network, checked before any rank computes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from torch import nn

from spbench_core.layout.balance import layer_ranges
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
class BatchSettings:
    """How the images of a step are shared out.

    Attributes:
        micro_batches: The number of micro-batches of a step.
        together: Whether batch normalisation goes over all replicas.
        training: Whether the model is trained.
        recomputes: Whether activations are computed again in the backward pass.
    """

    micro_batches: int = 1
    sync_batchnorm: bool = False
    training: bool = True
    recomputes: bool = False


def check_layout(
    model: ImportedModel,
    layout: ModelLayout,
    balance: Sequence[int] | None,
    batching: BatchSettings,
) -> None:
    """Check that a layout computes what the network computes on one process.

    Args:
        model: The network.
        layout: The layout of ranks.
        balance: The layers of each stage; None: not known yet.
        batching: How images are shared out.

    Raises:
        CannotRunError: It does not; with the line of the operator that is why.
    """
    for grid in dict.fromkeys(stage.grid for stage in layout.stages if stage.spatial):
        chosen = {stage for stage in layout.stages if stage.grid == grid}
        _check_tiles(model, grid, _layers(model, layout, balance, chosen))
    members = {stage for stage in layout.stages if stage.members > 1}
    shared = _layers(model, layout, balance, members)
    replicas = batching.sync_batchnorm and layout.replicas > 1
    everywhere = range(len(model.layers))
    _check_norms(model, everywhere if replicas else shared)
    if batching.training and (batching.recomputes or layout.mirrored):
        _check_estimates(model, "mirrored pipelines" if layout.mirrored else "recompute")
    _check_mixing(model, everywhere if replicas else shared, batching)


def _layers(
    model: ImportedModel,
    layout: ModelLayout,
    balance: Sequence[int] | None,
    chosen: Collection[Stage],
) -> Collection[int]:
    """Return the layers of all stages of a kind that are known.

    If the balance is not, they are those of all stages or of the first and the last one.
    """
    stages = layout.stages
    count = len(model.layers)
    if balance is not None:
        ranges = zip(stages, layer_ranges(balance), strict=True)
        return {layer for stage, span in ranges if stage in chosen for layer in range(*span)}
    if all(stage in chosen for stage in stages):
        return range(count)
    ends = {0: stages[0], count - 1: stages[-1]}
    return {layer for layer, stage in ends.items() if stage in chosen}


def _check_tiles(model: ImportedModel, grid: Grid, layers: Collection[int]) -> None:
    """Build layers for a rank of a grid without its neighbours: what cannot be raises."""
    ranks: Any = SimpleNamespace(rank=0, size=grid.size)
    image = model.network.image
    tiling = Tiling.of_grid(ranks, grid, image.height, image.width)
    for index in sorted(layers):
        layer = model.layers[index]
        assert isinstance(layer, ImportedLayer), "there are no others"
        build_tiled_piece(layer.piece, tiling, _norm_like)


def _norm_like(module: nn.BatchNorm2d, tiling: Tiling) -> nn.Module:
    settings = module.eps, module.momentum, module.affine, module.track_running_stats
    return nn.BatchNorm2d(module.num_features, *settings)


def _check_norms(model: ImportedModel, layers: Collection[int]) -> None:
    """Refuse normalisations that ranks cannot compute over each other's images."""
    for node in _nodes(model, layers):
        module = model.network.get_module(node)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            check_norm(f"network {model.name}: {locate(node)}", module)
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
            raise CannotRunError(
                f"network {model.name}: {locate(node)} keeps the mean of its images' statistics, "
                "and ranks have some of the images; take track_running_stats=False, or local_DP 1"
            )


def _check_estimates(model: ImportedModel, what: str) -> None:
    """Refuse spectral_norm if ranks call it in another order than one process."""
    for node in _nodes(model, range(len(model.layers))):
        module = model.network.get_module(node)
        if module is not None and has_estimate(module):
            raise CannotRunError(
                f"network {model.name}: {locate(node)} moves the estimate of its spectral_norm at "
                f"each call, and {what} would call it in another order; take scheme lp without "
                "recompute"
            )


def _check_mixing(model: ImportedModel, shared: Collection[int], batching: BatchSettings) -> None:
    """Refuse operators that mix images which ranks or micro-batches part."""
    if not shared and batching.micro_batches == 1:
        return
    nodes = set(_nodes(model, shared))
    for mixing in find_mixing_operators(model.network, training=batching.training):
        among_ranks = mixing.node in nodes
        # A micro-batch is normalised by itself, as by nn.BatchNorm2d.
        if among_ranks or (batching.micro_batches > 1 and not mixing.normalises):
            raise CannotRunError(_mixed(model, mixing, among_ranks=among_ranks))


def _mixed(model: ImportedModel, mixing: MixingOperator, *, among_ranks: bool) -> str:
    parts = "ranks that share them" if among_ranks else "micro-batches"
    remedy = "take parts (micro_batches) 1"
    if among_ranks:
        remedy = "take local_DP (members) 1, and no sync_batchnorm"
    other = "nn.BatchNorm2d, which ranks compute together"
    remedy += f", or {other if mixing.normalises else 'compute each image by itself'}"
    return (
        f"network {model.name}: {locate(mixing.node)} mixes the images of a batch, and {parts} "
        f"have some of them each; {remedy}"
    )


def _nodes(model: ImportedModel, layers: Collection[int]) -> list[Any]:
    nodes = []
    for index in sorted(layers):
        layer = model.layers[index]
        assert isinstance(layer, ImportedLayer), "there are no others"
        nodes += [each.node for each in layer.piece.operators]
    return nodes


def check_norm(name: str, module: nn.Module) -> None:
    """Refuse another batch norm than that of images with weights and running statistics.

    Raises:
        CannotRunError: It is another one.
    """
    usual = isinstance(module, nn.BatchNorm2d) and module.affine and module.track_running_stats
    if not usual or getattr(module, "momentum", None) is None:
        raise CannotRunError(
            f"{name}: ranks that share images normalise together, which works for BatchNorm2d "
            "with weights, running statistics and a momentum; take local_DP (members) 1, and no "
            "sync_batchnorm"
        )
    others = [key for key in module.state_dict() if key not in _NAMES_OF_NORM]
    if others:
        raise CannotRunError(
            f"{name}: computes its weights from {others[0]}, which ranks that share images cannot; "
            "take local_DP 1, or make it plain by torch's remove_parametrizations"
        )


_NAMES_OF_NORM = "weight", "bias", "running_mean", "running_var", "num_batches_tracked"


def check_stage_ends(model: ImportedModel, layout: ModelLayout) -> None:
    """Check that there is a layer in whose maps each stage of tiles can end, but for the last.

    Raises:
        CannotRunError: There is none.
    """
    before = 0
    stages = len(layout.stages)
    for index, stage in enumerate(layout.stages[:-1]):
        last = len(model.layers) - (stages - index - 1)
        ends = (at for at in range(before + 1, last + 1) if has_pixels(model.flows[at], stage.grid))
        before = next(ends, 0)
        if not before:
            raise CannotRunError(
                f"network {model.name}: stage {index} of {stage.grid} tiles has to end in maps "
                "with a pixel for each, and there is no layer for that; take fewer stages or "
                "tiles, a larger image_size, or scheme lp"
            )


def has_pixels(flow: Flow, grid: Grid) -> bool:
    """Return whether maps have a pixel for each of some tiles."""
    return all(data.height >= grid.rows and data.width >= grid.cols for data in flow)
