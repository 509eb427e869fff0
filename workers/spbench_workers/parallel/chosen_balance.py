"""The balance of a case's stages: as asked for, by measured times, or by estimated cost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

from spbench_core.catalog.benchmark import ParamError
from spbench_core.catalog.model.layout import (
    ESTIMATED,
    MEASURED,
    check_tiles,
    estimated_balance,
)
from spbench_core.layout.balance import Balance, balanced, layer_ranges, read_balance
from spbench_core.models.layers import ModelError
from spbench_workers.context import Context
from spbench_workers.device.memory import give_back
from spbench_workers.errors import CannotRunError
from spbench_workers.models.imported.model import ImportedModel
from spbench_workers.models.imported.parameters import has_pixels
from spbench_workers.parallel.layer_times import layer_times
from spbench_workers.parallel.plan import ModelPlan, check_fused
from spbench_workers.progress import PhaseProgress

LEAST_GAIN = 0.97
"""The most that the slowest stage of a balance by times may take of that by estimated cost."""


def chosen_balance(context: Context, plan: ModelPlan) -> Balance:
    """Return the layers of each stage: those of the parameters, or by times measured on rank 0.

    Raises:
        CannotRunError: The layers are not so many, or a stage has fewer pixels than tiles.
    """
    try:
        return _chosen(context, plan)
    except (ParamError, ModelError) as error:
        raise CannotRunError(str(error)) from None


def _chosen(context: Context, plan: ModelPlan) -> Balance:
    asked = context.params["balance"]
    if asked != MEASURED:
        balance = _given(asked, plan)
        check_balance(plan, balance)
        return balance
    costs = None
    if context.world.rank == 0:
        images = max(batch.size for batch in plan.batches)
        progress = PhaseProgress(partial(context.progress, "balance"))
        times = layer_times(plan.model, images, plan.device, plan.precision, plan.seed, progress)
        progress.finish()
        learns = not context.params["enable_evaluation"]
        costs = [time.forward_ms + (time.backward_ms if learns else 0.0) for time in times]
        give_back()
    costs = context.world.comm.bcast(costs)
    assert costs is not None, "rank 0 has sent them"
    balance, reason = _faster(plan, costs)
    if context.world.rank == 0:
        context.choice("balance", ",".join(map(str, balance)), reason)
    return balance


def _given(asked: str, plan: ModelPlan) -> Balance:
    """Return the balance by estimated cost, or by numbers.

    Raises:
        CannotRunError: The numbers are not those of the model's layers.
    """
    if asked == ESTIMATED:
        return in_maps(plan, estimated_balance(plan.model, plan.layout))
    try:
        return read_balance(asked, len(plan.layout.stages), len(plan.model.layers))
    except ValueError as error:
        raise CannotRunError(f"balance: {error}") from None


def _faster(plan: ModelPlan, costs: list[float]) -> tuple[Balance, str]:
    """Return the balance by measured costs where it is faster and can be, and why.

    Else it is that by estimated cost, which is the same in each launch.

    Raises:
        ModelError: Stages of the latter have fewer layers than are to be fused.
    """
    ranks = [stage.ranks for stage in plan.layout.stages]
    measured = in_maps(plan, balanced(costs, ranks))
    estimated = in_maps(plan, estimated_balance(plan.model, plan.layout))
    gain = _slowest(costs, ranks, measured) / _slowest(costs, ranks, estimated)
    if gain > LEAST_GAIN:
        check_balance(plan, estimated)
        return estimated, "by estimated cost; by the layers' times on rank 0 none is faster"
    try:
        check_balance(plan, measured)
    except (ParamError, ModelError) as error:
        check_balance(plan, estimated)
        told = ",".join(map(str, measured))
        return estimated, f"by estimated cost; by times it would be {told}, but {error}"
    return measured, "by the layers' times on rank 0"


def in_maps(plan: ModelPlan, balance: Balance) -> Balance:
    """Return the balance of an imported network with stages of tiles that end in maps, or earlier.

    Behind maps are vectors, which every rank has whole: no other stage could take them from one.
    """
    if not isinstance(plan.model, ImportedModel):
        return balance
    ends = [last for _, last in layer_ranges(balance)]
    for index, stage in enumerate(plan.layout.stages[:-1]):
        least = ends[index - 1] + 1 if index else 1
        while ends[index] > least and not has_pixels(plan.model.flows[ends[index]], stage.grid):
            ends[index] -= 1
    return tuple(end - before for before, end in pairwise((0, *ends)))


def _slowest(costs: list[float], ranks: list[int], balance: Balance) -> float:
    """Return the cost of the slowest stage."""
    pairs = zip(layer_ranges(balance), ranks, strict=True)
    return max(sum(costs[first:last]) / shared for (first, last), shared in pairs)


def check_balance(plan: ModelPlan, balance: Balance) -> None:
    """Check that stages of tiles begin and end in maps with a pixel for each.

    Raises:
        ParamError: One has fewer pixels than tiles.
        ModelError: It has fewer layers than are to be fused.
    """
    layers = len(plan.model.layers)
    for index, (first, last) in enumerate(layer_ranges(balance)):
        grid = plan.layout.stages[index].grid
        check_tiles(index, grid, plan.model, first)
        if isinstance(plan.model, ImportedModel) and last < layers:
            # What it gives has to be in tiles too: other models have no end of a stage but in maps.
            check_tiles(index + 1, grid, plan.model, last)
    check_fused(replace(plan, balance=balance))
