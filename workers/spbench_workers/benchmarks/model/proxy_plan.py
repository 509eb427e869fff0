"""The proxy of a case: the plan of a smaller model, checked in the place of the whole one."""

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
"""Multiply-adds that a comparison may take in any case: a few seconds of one core."""
LAYER_CALL_COST = 5e6
"""Multiply-adds that take as long as it takes to call a layer, whatever its size."""
_STEPS = 3
_LEARNING = 3
"""Multiply-adds of a step of training over those of its forward passes."""
_IN_FP64 = 2
_KEPT_BYTES = 24.0
"""Memory for each number that a step keeps, in float64, with what is computed beside it."""


@dataclass(frozen=True, slots=True)
class ProxyPlan:
    """The plan of a proxy, in a small batch.

    Attributes:
        proxy: The smaller model.
        plan: It on the ranks of the case.
    """

    proxy: Proxy
    plan: ModelPlan


def choose_proxy(context: Context, case: ModelCase) -> ProxyPlan:
    """Return the proxy that costs at most what the measurement costs. All ranks must call it."""
    world = context.world
    model = case.plan.model
    if isinstance(model, ImportedModel):
        found = _of_imported(context, case, model) if world.rank == 0 else None
        image = world.comm.bcast(None if found is None else found.image)
        small = found or (model if image == model.image else model.resized(*image.shape[1:]))
        proxy = Proxy(small, case.plan.balance, 1, model)
    else:
        made = world.comm.bcast(_proxy(context, case) if world.rank == 0 else None)
        assert made is not None, "rank 0 has sent it"
        proxy = made
    plan = replace(case.plan, model=proxy.model, balance=proxy.balance)
    return ProxyPlan(
        proxy, replace(case, plan=plan).make_small_plan(context.read_params(ModelParams).batch_size)
    )


def estimate_cost(model: Model, images: int) -> float:
    """Return a forward pass' cost of some images, in multiply-adds."""
    return images * count_multiply_adds(model) + LAYER_CALL_COST * len(model.layers)


def count_images(plan: ModelPlan) -> int:
    """Return the images of a step, of all replicas."""
    return sum(batch.size for batch in plan.batches) * plan.layout.replicas


def _proxy(context: Context, case: ModelCase) -> Proxy:
    plan = case.plan
    most, most_kept = _bounds(context, case)
    return make_proxy(
        plan.model,
        plan.balance,
        [stage.grid for stage in plan.layout.stages],
        most,
        max_kept_values=most_kept,
        fused_layers=plan.fused_layers,
    )


def _of_imported(context: Context, case: ModelCase, model: ImportedModel) -> ImportedModel:
    """Return an imported network for the largest images within the bounds; else the smallest.

    They are halved as long as the network can take them, and tiles have the pixels that their
    neighbours read; its layers are its own.
    """
    most, most_kept = _bounds(context, case)
    grids = {stage.grid for stage in case.plan.layout.stages if stage.spatial}
    small = model
    while count_multiply_adds(small) > most or count_kept_values(small) > most_kept:
        height, width = (side // 2 for side in small.image.shape[1:])
        try:
            smaller = small.resized(height, width)
        except CannotRunError:
            break
        if not all(is_same_over_tiles(smaller.network, model.network, grid) for grid in grids):
            break
        small = smaller
    return small


def _bounds(context: Context, case: ModelCase) -> tuple[float, float]:
    """Return the most multiply-adds of a forward pass of one image, and the most kept numbers."""
    plan = case.plan
    small = case.make_small_plan(context.read_params(ModelParams).batch_size)
    images = count_images(small)
    together = max(batch.size for batch in small.batches)
    most_kept = available_bytes(plan.device) / _KEPT_BYTES / together / plan.layout.replicas
    most = max(MIN_COST, _measured(context, case)) / _comparisons(case)
    layers = LAYER_CALL_COST * len(plan.model.layers)
    return max(0.0, most - layers) / images, most_kept


def _measured(context: Context, case: ModelCase) -> float:
    """Return the cost of the measurement, over its ranks."""
    params = context.read_params(ModelParams)
    plan = case.plan
    steps: int = params.warmup + (params.iterations or 1) * params.num_epochs
    passes = 1 if case.training is None else _LEARNING
    return steps * passes * estimate_cost(plan.model, case.images) / plan.layout.ranks


def _comparisons(case: ModelCase) -> float:
    """Return the cost of comparing a model over that of a forward pass of all its images."""
    steps = 1 if case.training is None else 1 + _STEPS * _LEARNING
    exact = 2 * _IN_FP64 * steps
    if case.plan.precision in (FP32, FP64):
        return exact
    # The reference and one process in the format of the run, besides.
    return exact + (_IN_FP64 + 1) * steps
