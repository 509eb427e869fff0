"""Catalog of models over many ranks: ResNet, AmoebaNet-D and user networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from spbench_core.catalog.benchmark import TIME_MS, Benchmark, Metric, make_time_metric
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
from spbench_workers.benchmarks.model.layout import TILED, count_ranks, describe_rank, make_layout
from spbench_workers.benchmarks.model.params import (
    AMOEBANET,
    COMMON,
    IMPORTED,
    OWN_NETWORK,
    RESNET,
    ModelParams,
)
from spbench_workers.benchmarks.model.profile.entry import BENCHMARKS as PROFILES
from spbench_workers.benchmarks.model.regimes import (
    CHECKS,
    CHECKS_OF_NETWORKS,
    Regime,
    select_checks,
    select_regimes,
)
from spbench_workers.benchmarks.model.resolving import PIPELINE_PARAMS, resolve
from spbench_workers.benchmarks.model.work import make_estimate

POSITION = 70
"""Position of the family in lists of benchmarks."""


def scale_model(
    only_pipelines: Iterable[str], explicit: Params, params: Params, target: ScalingTarget
) -> Params:
    """Return the parameters of a model at another number of ranks.

    The tiles of the spatial stage scale with the ranks; without tiles the stages scale, or the
    replicas if requested. One rank runs the sequential scheme. In weak scaling the images of a rank
    are constant: batch_size and parts grow with the ranks.

    Args:
        only_pipelines: The parameters that need several ranks.
        explicit: The explicit parameters of the case.
        params: The complete parameters.
        target: The number of ranks and the kind of scaling.

    Raises:
        ScalingError: The case is sequential, or the layout does not fit these ranks.
    """
    model = read_params(ModelParams, params)
    if model.scheme == "sequential":
        raise ScalingError("scheme sequential is one process: take lp, sp, gems or gems_sp")
    tiled = model.scheme in TILED
    scaled = choose_scaled_param(
        target, ("num_spatial_parts" if tiled else "split_size", "replicas")
    )
    images = _scale_images(model, target) if scaled != "replicas" else {}
    if target.ranks == 1:
        images = _scale_images_of_one(model, target)
        sequential = {name: value for name, value in explicit.items() if name not in only_pipelines}
        return sequential | {"scheme": "sequential"} | images
    return explicit | _LAYOUTS[scaled](model, make_layout(params), target) | images


def _scale_images(params: ModelParams, target: ScalingTarget) -> Params:
    """Return images and micro-batches of a step of each replica."""
    if target.work == "strong":
        return {}
    return {
        "batch_size": scale_with_ranks("batch_size", params.batch_size, target),
        "parts": scale_with_ranks("parts", params.parts, target),
    }


def _scale_images_of_one(params: ModelParams, target: ScalingTarget) -> Params:
    """Return images and micro-batches of a single process, summed over replicas."""
    replicas = require_value(params.replicas)
    images = params.batch_size * replicas
    if target.work == "strong":
        return {"batch_size": images}
    parts = params.parts * replicas
    return {
        "batch_size": scale_with_ranks("batch_size", images, target),
        "parts": scale_with_ranks("parts", parts, target),
    }


def _scale_stages(params: ModelParams, layout: ModelLayout, target: ScalingTarget) -> Params:
    if params.local_DP != "1":
        raise ScalingError(f"with local_DP {params.local_DP} stages have several ranks")
    return {"split_size": scale_exactly("split_size", target.ranks, layout.rounds, layout.replicas)}


def _scale_tiles(params: ModelParams, layout: ModelLayout, target: ScalingTarget) -> Params:
    if params.spatial_size != 1:
        raise ScalingError(f"with spatial_size {params.spatial_size} several stages have tiles")
    other_ranks = layout.rank_count // layout.replicas - layout.stages[0].rank_count
    ranks = scale_exactly("the ranks of a replica", target.ranks, 1, layout.replicas)
    if ranks - other_ranks < 2:
        minimum = (other_ranks + 2) * layout.replicas
        raise ScalingError(f"np {target.ranks} leaves no two tiles: take 1, or {minimum} and more")
    method = params.slice_method or find_slice_method(layout.stages[0].grid)
    return {"num_spatial_parts": str(ranks - other_ranks), "slice_method": method, "grid": None}


def _scale_replicas(params: ModelParams, layout: ModelLayout, target: ScalingTarget) -> Params:
    replicas = scale_exactly("replicas", target.ranks * layout.replicas, 1, layout.rank_count)
    if target.work == "weak":
        return {"replicas": replicas}
    images = scale_exactly("batch_size", params.batch_size, layout.replicas, replicas)
    return {"replicas": replicas, "batch_size": images}


_LAYOUTS: dict[str, Callable[[ModelParams, ModelLayout, ScalingTarget], Params]] = {
    "split_size": _scale_stages,
    "num_spatial_parts": _scale_tiles,
    "replicas": _scale_replicas,
}


def _make_phase_metric(name: str, help_text: str, *, waits: bool = False) -> Metric:
    """Return the metric of a phase in a rank's step."""
    return Metric(f"{name}_ms", "ms", "lower", help_text, part_of=TIME_MS.name, waits=waits)


_METRICS = (
    make_time_metric("one step, or one batch of inference"),
    Metric(
        "images_per_second",
        "1/s",
        "higher",
        "images of all replicas divided by the time of the step",
        "min",
    ),
    _make_phase_metric(
        "forward", "forward work of a rank in a step, including the creation or reading of images"
    ),
    _make_phase_metric("backward", "backward work of a rank in a step"),
    _make_phase_metric("exchange", "halo exchange of a rank in a step", waits=True),
    _make_phase_metric("join", "transfer between stages, without waits"),
    _make_phase_metric("allreduce", "sums of gradients and statistics over ranks", waits=True),
    _make_phase_metric("optimizer", "the update of the weights"),
    _make_phase_metric(
        "bubble", "wait of a rank for other stages, and for the next step", waits=True
    ),
    Metric(
        "gathered_ms",
        "ms",
        "lower",
        "part of the passes of a rank: operators on gathered maps, of your own network over tiles",
    ),
    Metric(
        "bubble",
        "1",
        "lower",
        "share of the time of all ranks in which they wait; bubble_ms is the longest wait",
        "mean",
        title="bubble share",
    ),
    Metric(
        "ideal_bubble",
        "1",
        "none",
        "the same for the schedule with stages of equal duration",
        title="ideal bubble share",
    ),
    Metric("peak_memory_mb", "MB", "lower", "peak memory of a rank"),
    Metric(
        "activation_mb",
        "MB",
        "lower",
        "peak of the data that autograd keeps, in a step of the warm-up",
    ),
    Metric("parameter_mb", "MB", "none", "weights, their gradients and the state of the optimizer"),
    Metric("halo_mb", "MB", "none", "halos and their gradients that a rank sends and receives"),
    Metric("message_mb", "MB", "none", "buffers of messages between stages"),
    Metric("bytes_sent", "B", "none", "bytes that a rank sends in a step"),
    Metric("messages_sent", "1", "none", "messages that a rank sends in a step"),
    Metric("parameters", "1", "none", "trainable parameters in use"),
    Metric("loss", "1", "none", "cross entropy, or the chosen loss, in the last step"),
    Metric("epoch_loss", "1", "none", "the same over the images of the last epoch"),
    Metric(
        "accuracy", "1", "none", "share of images, or pixels, whose class has the largest logit"
    ),
    Metric(
        "skipped_steps",
        "1",
        "none",
        "steps of fp16 that were skipped because of an overflow of gradients",
    ),
    Metric(
        "judged_images",
        "1",
        "none",
        "number of inferred images that accuracy, loss and agreement refer to",
    ),
    Metric(
        "latency_ms",
        "ms",
        "lower",
        "time of a request of inference, from its arrival to its answer",
    ),
    Metric(
        "offered_load",
        "1",
        "none",
        "arrival_rate times the time per request; above 1 requests accumulate",
    ),
    Metric("top1", "1", "higher", "share of images, or pixels, whose class has the largest logit"),
    Metric(
        "top5",
        "1",
        "higher",
        "share of images, or pixels, whose class has one of the five largest logits",
    ),
    Metric(
        "mean_iou",
        "1",
        "higher",
        "intersection over union of the classes of pixels, mean over classes",
    ),
    Metric("eval_loss", "1", "lower", "cross entropy of the inferred images"),
    Metric(
        "agreement", "1", "higher", "share of images, or pixels, with the same class as in fp32"
    ),
    Metric(
        "logit_error",
        "1",
        "lower",
        "largest change of a logit by the number format, relative to fp32",
    ),
    Metric("int8_share", "1", "higher", "share of the multiply-adds in int8", "min"),
    Metric(
        "sequential_ms",
        "ms",
        "none",
        "time of one process for the same number of images",
        separate=True,
    ),
    Metric("speedup_vs_sequential", "1", "higher", "sequential time divided by the time"),
    Metric("efficiency", "1", "higher", "speedup divided by the number of ranks"),
)
_STEP_FAULTS = (
    "drop-gradient",
    "mean-instead-of-sum",
    "tile-batchnorm",
    "wrong-neighbour",
    "skipped-microbatch",
    "lost-halo-gradient",
    "zero-weight-gradient",
    "zero-input-gradient",
    "scale-weight-gradient",
    "scale-input-gradient",
    "drop-tile",
)
_IMPORT_FAULTS = ("lost-tile-sum", "tile-dice", "other-draws", "stale-state")
FAULTS_OF_LEARNING = frozenset((*_STEP_FAULTS, *_IMPORT_FAULTS)) - {"wrong-neighbour"}
"""Faults of gradients and statistics, which need training."""
_TILE_FAULTS = ("drop-tile", "lost-halo-gradient", "lost-tile-sum", "tile-dice")
"""Faults that need a tile on the last rank."""
OPERATOR_FAULTS = (
    "zero-weight-gradient",
    "zero-input-gradient",
    "scale-weight-gradient",
    "scale-input-gradient",
)
"""Faults that only a comparison of operators finds at full size."""
_FAULTS = (*_STEP_FAULTS, "uncounted-wait")
FULL_SIZE_FAULTS = tuple(f"full:{fault}" for fault in _STEP_FAULTS)
"""The same faults, injected only at full size."""


def _faults(faults: tuple[str, ...], params: Params) -> tuple[str, ...]:
    """Return the faults with an effect, without those of training for inference."""
    if not params["enable_evaluation"]:
        return faults
    return tuple(fault for fault in faults if fault.removeprefix("full:") not in FAULTS_OF_LEARNING)


def _has_effect(fault: str, params: Params) -> bool:
    """Return whether a fault changes anything, if the parameters show that."""
    base_fault = fault.removeprefix("full:")
    if base_fault != fault:
        if Regime.FULL_SIZE not in select_regimes(params):
            return False
        if base_fault in OPERATOR_FAULTS and "operators" not in select_checks(CHECKS, params):
            return False
    if base_fault == "uncounted-wait":
        return bool(params["arrival"] == "poisson")
    layout = make_layout(params)
    last_rank = layout.list_coordinates(layout.rank_count - 1)
    stages = [layout.stages[coordinates.stage] for coordinates in last_rank]
    has_tile = any(stage.spatial for stage in stages)
    if base_fault in _TILE_FAULTS:
        return has_tile
    if base_fault == "wrong-neighbour":
        return has_tile or len(layout.stages) > 1
    if base_fault == "tile-batchnorm":
        return any(stage.rank_count > 1 for stage in layout.stages)
    if base_fault == "mean-instead-of-sum":
        return params["parts"] > 1 or any(stage.rank_count > 1 for stage in stages)
    return True


BENCHMARKS = (
    *(
        Benchmark(
            name=f"model.{name}",
            summary=f"{title} over many ranks: stages, tiles, bidirectional pipelines, replicas",
            runs_in="model.run",
            checked_in="model.network" if name == "network" else None,
            params=params,
            metrics=_METRICS,
            checks=(*CHECKS, *(CHECKS_OF_NETWORKS if name == "network" else ())),
            faults=(*_FAULTS, *FULL_SIZE_FAULTS, *(_IMPORT_FAULTS if name == "network" else ())),
            resolve=partial(resolve, name),
            ranks=count_ranks,
            scaled=partial(scale_model, PIPELINE_PARAMS),
            throughput="images_per_second",
            choose_checks=select_checks,
            choose_faults=_faults,
            has_effect=_has_effect,
            own_lines=True,
            says_passed=True,
            place=describe_rank,
            # The work of a user's network is unknown before it is loaded.
            work=None if name == "network" else make_estimate(name),
            begins_with={"network": "torchvision.models:resnet18"} if name == "network" else {},
            starter={**starter, "batch_size": 4, "iterations": 10, "warmup": 1},
        )
        for name, title, params, starter in (
            ("resnet", "a residual network", (*COMMON, *RESNET), {"depth": 11}),
            (
                "amoebanet",
                "AmoebaNet-D",
                (*COMMON, *AMOEBANET),
                {"num_layers": 3, "num_filters": 16},
            ),
            ("network", "a network of your own", (*OWN_NETWORK, *IMPORTED), {}),
        )
    ),
    *PROFILES,
)
