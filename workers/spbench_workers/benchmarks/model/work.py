"""Estimates of the work of models over many ranks and of layer profiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.typed_params import read_params
from spbench_core.catalog.work import Work, WorkEstimate
from spbench_workers.benchmarks.model.layout import MIRRORED, make_layout
from spbench_workers.benchmarks.model.params import ModelParams
from spbench_workers.benchmarks.model.resolving import build_known_model

_VALIDATION = 12.0
"""Steps' worth of the comparison with one process, measured on the shipped suites."""
_FULL_SIZE = 10.0
"""Steps' worth of the checks at full size, in float64."""
_BASELINE = 6.0
"""Steps of the baseline on one process, including the dropped first one."""
_TILE_MESSAGES = 4.0
"""Messages of a rank per operator over tiles, for halos and sums of statistics."""
_PARAMETER_BYTES = 240.0
"""Bytes copied per parameter: weights are drawn, sent and compared in float64."""
_LEARNING = 3.0
"""Work of a training step over that of inference, for gradients of maps and of weights."""
_SET_UP = 1.0
"""Seconds to build models and to time layers for the balance."""


@dataclass(frozen=True, slots=True)
class _ModelSize:
    """Multiply-adds, parameters, operators and values of a model, for one image."""

    multiply_adds: int
    parameters: int
    operators: int
    values: int


def _find_size(name: str, params: Params) -> _ModelSize:
    names = ("image_size", "num_classes", "arch", "version", "depth", "num_layers", "num_filters")
    keys = (*names, "pool3", "shift")
    return _cached_size(name, tuple((key, params[key]) for key in keys if key in params))


@cache
def _cached_size(name: str, items: tuple[tuple[str, object], ...]) -> _ModelSize:
    from spbench_core.models.operators import count_operators

    model = build_known_model(name, dict(items))
    operators = count_operators(model)
    return _ModelSize(
        sum(count.multiply_adds for count in model.counts),
        model.parameters,
        operators.operators,
        operators.values,
    )


def make_estimate(name: str) -> WorkEstimate:
    """Return the estimate of ``model.resnet`` or ``model.amoebanet``."""
    return partial(_estimate_model, name)


def _estimate_model(name: str, params: Params, np: int) -> Work | None:
    model = read_params(ModelParams, params)
    if model.iterations is None:
        return None  # a pass over an unknown number of images
    size = _find_size(name, params)
    replicas = model.replicas or 1
    pipelines = replicas * (2 if model.scheme in MIRRORED else 1)
    pairs_per_step = model.times or 1
    micro_batches = model.parts * pipelines * pairs_per_step
    images_per_step = model.batch_size * pipelines * pairs_per_step

    # Each rank of a stage calls each of its operators.
    stages = make_layout(params).stages
    stage_ranks = np / replicas / len(stages)
    tiled_share = sum(stage.spatial for stage in stages) / len(stages)

    learns = not model.enable_evaluation
    work_factor = _LEARNING if learns else 1.0
    operator_calls = size.operators * micro_batches * work_factor
    flops = 2.0 * size.multiply_adds * images_per_step * work_factor

    timed_steps = float(model.iterations * model.num_epochs + model.warmup)
    check_steps = 0.0 if model.validate == "off" else _VALIDATION
    full_size_steps = _FULL_SIZE if model.validate == "auto" else 0.0
    steps = timed_steps + check_steps + full_size_steps
    baseline_steps = _BASELINE if model.baseline and np > 1 else 0.0
    waiting_seconds = 0.0
    if model.arrival_rate:
        waiting_seconds = model.iterations / model.arrival_rate

    # Weights, gradients and momentum; maps are kept for at least one micro-batch.
    weights = size.parameters * pipelines * (3.0 if learns else 1.0)
    maps = size.values * images_per_step / micro_batches
    return Work(
        flops=flops * steps,
        single_flops=flops * baseline_steps,
        calls=operator_calls * stage_ranks * (steps + baseline_steps),
        bytes=_PARAMETER_BYTES * size.parameters * pipelines,
        messages=operator_calls * tiled_share * _TILE_MESSAGES * steps,
        seconds=_SET_UP + waiting_seconds,
        memory=4.0 * (weights + maps),
    )


def estimate_layers(name: str, params: Params, batch_sizes: list[int], steps: int, np: int) -> Work:
    """Return the work of ``np`` ranks that run every layer of a model separately.

    Args:
        name: The model, ``resnet`` or ``amoebanet``.
        params: Its parameters.
        batch_sizes: Images of each kind of step.
        steps: Steps of each kind.
        np: The number of ranks.
    """
    size = _find_size(name, params)
    images_of_all_sizes = float(sum(batch_sizes))
    flops_per_rank = 2.0 * size.multiply_adds * _LEARNING * steps * images_of_all_sizes
    calls_per_rank = size.operators * _LEARNING * steps * len(batch_sizes)
    bytes_per_rank = 4.0 * (2.0 * size.parameters + size.values * max(batch_sizes))
    return Work(
        flops=np * flops_per_rank,
        calls=np * calls_per_rank,
        seconds=0.1,
        memory=np * bytes_per_rank,
    )
