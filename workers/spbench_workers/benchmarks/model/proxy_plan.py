"""Proxy of a case: the plan of a smaller model that is checked instead."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spbench_core.models.layers import Model
from spbench_core.models.proxy import Proxy, count_multiply_adds, make_proxy
from spbench_core.models.reach import count_kept_values
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.tile_strategies import is_same_over_tiles
from spbench_parallel.peak_memory import available_bytes
from spbench_parallel.plan import ModelPlan
from spbench_parallel.precision.formats import FP32, FP64
from spbench_workers.benchmarks.model.case import ModelCase
from spbench_workers.benchmarks.model.params import ModelParams
from spbench_workers.context import Context

MIN_COST = 4e10
"""Multiply-adds that a comparison may always use: a few seconds of one core."""
LAYER_CALL_COST = 5e6
"""Multiply-adds that take as long as the overhead of calling a layer."""
_STEPS = 3
_TRAINING_FACTOR = 3
"""Multiply-adds of a training step over those of its forward passes."""
_FP64_FACTOR = 2
_KEPT_BYTES = 24.0
"""Bytes per number that a step keeps in float64, including temporary memory."""


@dataclass(frozen=True, slots=True)
class ProxyPlan:
    """The plan of a proxy, in a small batch.

    Attributes:
        proxy: The smaller model.
        plan: Its plan on the ranks of the case.
    """

    proxy: Proxy
    plan: ModelPlan


def choose_proxy(context: Context, case: ModelCase) -> ProxyPlan:
    """Return a proxy that costs at most as much as the measurement.

    All ranks must call it.
    """
    world = context.world
    model = case.plan.model
    if isinstance(model, ImportedModel):
        small_model = _shrink_imported(context, case, model) if world.rank == 0 else None
        image = world.comm.bcast(None if small_model is None else small_model.image)
        candidate = small_model or (
            model if image == model.image else model.resized(*image.shape[1:])
        )
        proxy = Proxy(candidate, case.plan.balance, 1, model)
    else:
        proxy_model = world.comm.bcast(_make_proxy(context, case) if world.rank == 0 else None)
        assert proxy_model is not None, "rank 0 has sent it"
        proxy = proxy_model
    plan = replace(case.plan, model=proxy.model, balance=proxy.balance)
    return ProxyPlan(
        proxy, replace(case, plan=plan).make_small_plan(context.read_params(ModelParams).batch_size)
    )


def estimate_cost(model: Model, images: int) -> float:
    """Return the cost of a forward pass of some images in multiply-adds."""
    return images * count_multiply_adds(model) + LAYER_CALL_COST * len(model.layers)


def count_images(plan: ModelPlan) -> int:
    """Return the images of a step over all replicas."""
    return sum(batch.size for batch in plan.batches) * plan.layout.replicas


def _make_proxy(context: Context, case: ModelCase) -> Proxy:
    plan = case.plan
    max_cost, max_kept_values = _find_proxy_limits(context, case)
    return make_proxy(
        plan.model,
        plan.balance,
        [stage.grid for stage in plan.layout.stages],
        max_cost,
        max_kept_values=max_kept_values,
        fused_layers=plan.fused_layers,
    )


def _shrink_imported(context: Context, case: ModelCase, model: ImportedModel) -> ImportedModel:
    """Return an imported network for the largest images within the bounds.

    Images are halved until they are within the bounds, as long as the network accepts them and
    tiles have the pixels that their neighbours read. The layers are unchanged.
    """
    max_cost, max_kept_values = _find_proxy_limits(context, case)
    grids = {stage.grid for stage in case.plan.layout.stages if stage.spatial}
    candidate = model
    while (
        count_multiply_adds(candidate) > max_cost or count_kept_values(candidate) > max_kept_values
    ):
        height, width = (side // 2 for side in candidate.image.shape[1:])
        try:
            smaller = candidate.resized(height, width)
        except CannotRunError:
            break
        if not all(is_same_over_tiles(smaller.network, model.network, grid) for grid in grids):
            break
        candidate = smaller
    return candidate


def _find_proxy_limits(context: Context, case: ModelCase) -> tuple[float, float]:
    """Return the most multiply-adds of an image's forward pass and kept numbers."""
    plan = case.plan
    small_plan = case.make_small_plan(context.read_params(ModelParams).batch_size)
    image_count = count_images(small_plan)
    largest_batch = max(batch.size for batch in small_plan.batches)
    max_kept_values = (
        available_bytes(plan.device) / _KEPT_BYTES / largest_batch / plan.layout.replicas
    )
    max_cost = max(MIN_COST, _estimate_measurement(context, case)) / _estimate_comparison(case)
    layer_calls_cost = LAYER_CALL_COST * len(plan.model.layers)
    return max(0.0, max_cost - layer_calls_cost) / image_count, max_kept_values


def _estimate_measurement(context: Context, case: ModelCase) -> float:
    """Return the cost of the measurement per rank."""
    params = context.read_params(ModelParams)
    plan = case.plan
    steps: int = params.warmup + (params.iterations or 1) * params.num_epochs
    passes_per_step = 1 if case.training is None else _TRAINING_FACTOR
    return steps * passes_per_step * estimate_cost(plan.model, case.images) / plan.layout.rank_count


def _estimate_comparison(case: ModelCase) -> float:
    """Return the cost of a comparison over that of a forward pass of all its images."""
    steps = 1 if case.training is None else 1 + _STEPS * _TRAINING_FACTOR
    exact = 2 * _FP64_FACTOR * steps
    if case.plan.precision in (FP32, FP64):
        return exact
    # In addition, the reference and one process run in the format of the case.
    return exact + (_FP64_FACTOR + 1) * steps
