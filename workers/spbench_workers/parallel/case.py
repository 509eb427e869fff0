"""A case of a model benchmark: the plan and the training that its parameters ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from spbench_core.catalog.benchmark import ParamError
from spbench_core.catalog.model_layout import (
    MEASURED,
    check_tiles,
    estimated_balance,
    layout_of,
)
from spbench_core.catalog.models import model_of
from spbench_core.layout.balance import Balance, balanced, layer_ranges
from spbench_core.layout.micro_batches import micro_batches
from spbench_core.models.layers import ModelError
from spbench_core.models.reach import fewest_normalised
from spbench_workers.context import Context
from spbench_workers.device.choice import device_of
from spbench_workers.device.memory import give_back
from spbench_workers.parallel.faster_format import chosen_format
from spbench_workers.parallel.layer_times import layer_times
from spbench_workers.parallel.pipeline.building import check_fused
from spbench_workers.parallel.plan import ModelPlan, TrainingConfig
from spbench_workers.parallel.precision.formats import PRECISIONS

LEAST_GAIN = 0.97
"""The most that the slowest stage of a balance by times may take of that by estimated cost."""
LEAST_VALUES = 8
"""Values of a channel in a micro-batch that is compared, where it is normalised."""


@dataclass(frozen=True, slots=True)
class ModelCase:
    """A case of a model benchmark, ready to be computed.

    Attributes:
        plan: The model, its layout and its micro-batches.
        training: None for inference.
    """

    plan: ModelPlan
    training: TrainingConfig | None

    @property
    def images(self) -> int:
        """Images of a step, of all replicas."""
        return sum(batch.size for batch in self.plan.batches) * self.plan.layout.replicas

    def small(self, batch_size: int) -> ModelPlan:
        """Return the plan of a batch that is as small as the layout lets it be.

        It has an image more where ``batch_size`` has, so that micro-batches are of unequal sizes.
        Each channel that is normalised has `LEAST_VALUES` values, even where ``batch_size`` images
        have fewer: few values, nearly equal, would make every rounding large. Where maps end as
        single pixels, each rank has two images, as batch normalisation needs them.
        """
        plan = self.plan
        members = max(stage.members for stage in plan.layout.stages)
        pairs = 1 + max(batch.pair for batch in plan.batches)
        parts = len(plan.batches) // (pairs * len(plan.layout.directions))
        pixels = fewest_normalised(plan.model) or LEAST_VALUES
        images = max(members * (2 if pixels == 1 else 1), -(-LEAST_VALUES // pixels))
        least = parts * len(plan.layout.directions) * images
        size = least + (batch_size > least)
        batches = micro_batches(size, parts, mirrored=plan.layout.mirrored, times=pairs)
        return replace(plan, batches=batches)


def case_of(context: Context) -> ModelCase:
    """Return the case that the parameters ask for. All ranks must call it."""
    params = context.params
    model = model_of(context.entry.name.removeprefix("model."), params)
    layout = layout_of(params)
    precision = PRECISIONS[params["precision"]]
    place = device_of(context, tf32=precision.tf32)
    plan = ModelPlan(
        model,
        layout,
        (len(model.layers),),
        micro_batches(
            params["batch_size"],
            params["parts"],
            mirrored=layout.mirrored,
            times=params["times"] or 1,
        ),
        schedule=params["schedule"] or "1f1b",
        seed=context.seed,
        device=place,
        precision=precision,
        backend=params["backend"] or "mpi",
        master_comm=bool(params["enable_master_comm_opt"]),
        fused_layers=params["fused_layers"] or 0,
        statistics=_statistics(context),
        recompute=params["recompute"],
        recompute_stages=_stages(params["recompute_stages"]),
    )
    if len(layout.stages) > 1:
        plan = replace(plan, balance=_balance(context, plan))
    plan = replace(plan, memory_format=chosen_format(context, plan))
    return ModelCase(plan, None if params["enable_evaluation"] else _training(context))


def _stages(chosen: list[int] | None) -> tuple[int, ...] | None:
    return None if chosen is None else tuple(chosen)


def _statistics(context: Context) -> str:
    if context.planted_in_job("tile-batchnorm"):
        return "tile"
    return "replicas" if context.params["sync_batchnorm"] == "replicas" else "image"


def _training(context: Context) -> TrainingConfig:
    params = context.params
    return TrainingConfig(
        params["optimizer"],
        params["learning_rate"],
        params["weight_decay"],
        params["learning_rate_decay"],
    )


def _balance(context: Context, plan: ModelPlan) -> Balance:
    """Return the layers of each stage: those of the parameters, or by times measured on rank 0."""
    if context.params["balance"] != MEASURED:
        return tuple(map(int, context.params["balance"].split(",")))
    costs = None
    if context.world.rank == 0:
        images = max(batch.size for batch in plan.batches)
        times = layer_times(
            plan.model,
            images,
            plan.device,
            plan.precision,
            plan.seed,
            tell=partial(context.progress, "balance"),
        )
        learns = not context.params["enable_evaluation"]
        costs = [time.forward_ms + (time.backward_ms if learns else 0.0) for time in times]
        give_back()
    costs = context.world.comm.bcast(costs)
    assert costs is not None, "rank 0 has sent them"
    balance, reason = _chosen_balance(plan, costs)
    if context.world.rank == 0:
        context.choice("balance", ",".join(map(str, balance)), reason)
    return balance


def _chosen_balance(plan: ModelPlan, costs: list[float]) -> tuple[Balance, str]:
    """Return the balance by measured costs where it is faster and can be, and why.

    Else it is that by estimated cost, which is the same in each launch.

    Raises:
        ModelError: Stages of the latter have fewer layers than are to be fused.
    """
    ranks = [stage.ranks for stage in plan.layout.stages]
    measured, estimated = balanced(costs, ranks), estimated_balance(plan.model, plan.layout)
    gain = _slowest(costs, ranks, measured) / _slowest(costs, ranks, estimated)
    if gain > LEAST_GAIN:
        _check_stages(plan, estimated)
        return estimated, "by estimated cost; by the layers' times on rank 0 none is faster"
    try:
        _check_stages(plan, measured)
    except (ParamError, ModelError) as error:
        _check_stages(plan, estimated)
        told = ",".join(map(str, measured))
        return estimated, f"by estimated cost; by times it would be {told}, but {error}"
    return measured, "by the layers' times on rank 0"


def _slowest(costs: list[float], ranks: list[int], balance: Balance) -> float:
    """Return the cost of the slowest stage."""
    pairs = zip(layer_ranges(balance), ranks, strict=True)
    return max(sum(costs[first:last]) / shared for (first, last), shared in pairs)


def _check_stages(plan: ModelPlan, balance: Balance) -> None:
    for index, (first, _) in enumerate(layer_ranges(balance)):
        check_tiles(index, plan.layout.stages[index].grid, plan.model, first)
    check_fused(replace(plan, balance=balance))
