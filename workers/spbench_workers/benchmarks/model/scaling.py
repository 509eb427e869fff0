"""The layout of a model at other numbers of ranks: more stages, more tiles, or more replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.scaling import (
    ScalingError,
    ScalingTarget,
    choose_scaled_param,
    scale_exactly,
    scale_with_ranks,
)
from spbench_core.catalog.tiles import find_slice_method
from spbench_core.catalog.typed_params import read_params, require_value
from spbench_core.layout.stages import ModelLayout
from spbench_workers.benchmarks.model.layout import TILED, make_layout
from spbench_workers.benchmarks.model.params import ModelParams


def scale_model(
    only_pipelines: Iterable[str], given: Params, params: Params, to: ScalingTarget
) -> Params:
    """Return the parameters of a model over other ranks; on one rank it is sequential.

    The tiles of the spatial stage follow the ranks, without tiles the stages, or by ``replicas``
    these. In weak scaling a rank keeps its images: batch_size and parts grow with the ranks.

    Args:
        only_pipelines: The parameters that only several ranks have.
        given: Those that the case is given.
        params: All of them, complete.
        to: The ranks.

    Raises:
        ScalingError: The case is sequential, or these ranks make no such layout.
    """
    model = read_params(ModelParams, params)
    if model.scheme == "sequential":
        raise ScalingError("scheme sequential is one process: take lp, sp, gems or gems_sp")
    tiled = model.scheme in TILED
    by = choose_scaled_param(to, ("num_spatial_parts" if tiled else "split_size", "replicas"))
    images = _images(model, to) if by != "replicas" else {}
    if to.ranks == 1:
        images = _images_of_one(model, to)
        one = {name: value for name, value in given.items() if name not in only_pipelines}
        return one | {"scheme": "sequential"} | images
    return given | _LAYOUTS[by](model, make_layout(params), to) | images


def _images(params: ModelParams, to: ScalingTarget) -> Params:
    """Return images and micro-batches of a step; each replica has as many."""
    if to.work == "strong":
        return {}
    return {
        "batch_size": scale_with_ranks("batch_size", params.batch_size, to),
        "parts": scale_with_ranks("parts", params.parts, to),
    }


def _images_of_one(params: ModelParams, to: ScalingTarget) -> Params:
    """Return those of the one process, which has the images of all replicas."""
    replicas = require_value(params.replicas)
    images = params.batch_size * replicas
    if to.work == "strong":
        return {"batch_size": images}
    parts = params.parts * replicas
    return {
        "batch_size": scale_with_ranks("batch_size", images, to),
        "parts": scale_with_ranks("parts", parts, to),
    }


def _stages(params: ModelParams, layout: ModelLayout, to: ScalingTarget) -> Params:
    if params.local_DP != "1":
        raise ScalingError(f"with local_DP {params.local_DP} stages have several ranks")
    return {"split_size": scale_exactly("split_size", to.ranks, layout.rounds, layout.replicas)}


def _tiles(params: ModelParams, layout: ModelLayout, to: ScalingTarget) -> Params:
    if params.spatial_size != 1:
        raise ScalingError(f"with spatial_size {params.spatial_size} several stages have tiles")
    rest = layout.ranks // layout.replicas - layout.stages[0].ranks
    ranks = scale_exactly("the ranks of a replica", to.ranks, 1, layout.replicas)
    if ranks - rest < 2:
        least = (rest + 2) * layout.replicas
        raise ScalingError(f"np {to.ranks} leaves no two tiles: take 1, or {least} and more")
    method = params.slice_method or find_slice_method(layout.stages[0].grid)
    return {"num_spatial_parts": str(ranks - rest), "slice_method": method, "grid": None}


def _replicas(params: ModelParams, layout: ModelLayout, to: ScalingTarget) -> Params:
    replicas = scale_exactly("replicas", to.ranks * layout.replicas, 1, layout.ranks)
    if to.work == "weak":
        return {"replicas": replicas}
    images = scale_exactly("batch_size", params.batch_size, layout.replicas, replicas)
    return {"replicas": replicas, "batch_size": images}


_LAYOUTS: dict[str, Callable[[ModelParams, ModelLayout, ScalingTarget], Params]] = {
    "split_size": _stages,
    "num_spatial_parts": _tiles,
    "replicas": _replicas,
}
