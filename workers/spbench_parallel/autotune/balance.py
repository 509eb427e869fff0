"""The balance of a plan's stages by measured times or by estimated cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from spbench_core.layout.balance import Balance, balance_layers, list_layer_ranges
from spbench_core.models.parts import ModelError
from spbench_core.models.stages import balance_by_cost, check_tiles
from spbench_parallel.device.memory import release_memory
from spbench_parallel.layer_times import measure_layer_times
from spbench_parallel.models.imported.layouts import has_pixels
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.plan import ModelPlan, check_fused
from spbench_parallel.progress import NO_PROGRESS, Progress

LEAST_GAIN = 0.97
"""The ratio of the slowest stages' times below which the measured balance is used.

Smaller gains are not used, because the estimated balance is the same in each launch.
"""


def estimate_balance(plan: ModelPlan) -> Balance:
    """Return the balance by estimated cost."""
    return move_ends_to_maps(plan, balance_by_cost(plan.model, plan.layout))


def measure_costs(
    plan: ModelPlan, progress: Progress = NO_PROGRESS, *, learns: bool
) -> list[float]:
    """Measure each layer's ms for a micro-batch on this process.

    Args:
        plan: The model.
        progress: The progress over the layers.
        learns: Whether backward passes count, too.
    """
    images = max(batch.size for batch in plan.batches)
    layer_times = measure_layer_times(
        plan.model, images, plan.device, plan.precision, plan.seed, progress
    )
    release_memory()
    return [time.forward_ms + (time.backward_ms if learns else 0.0) for time in layer_times]


def choose_balance(plan: ModelPlan, costs: list[float]) -> tuple[Balance, str]:
    """Return the balance by measured costs if it is faster, and the reason.

    Otherwise it is the balance by estimated cost, which is the same in each launch.

    Args:
        plan: The model over its ranks; its own balance is not read.
        costs: The cost of each layer.

    Raises:
        ModelError: Stages of the estimated balance have fewer layers than are to be fused.
    """
    ranks_by_stage = [stage.rank_count for stage in plan.layout.stages]
    measured_balance = move_ends_to_maps(plan, balance_layers(costs, ranks_by_stage))
    estimated_balance = estimate_balance(plan)
    time_ratio = _estimate_slowest_stage(
        costs, ranks_by_stage, measured_balance
    ) / _estimate_slowest_stage(costs, ranks_by_stage, estimated_balance)
    if time_ratio > LEAST_GAIN:
        check_balance(plan, estimated_balance)
        return estimated_balance, "by estimated cost; by the layers' times on rank 0 none is faster"
    try:
        check_balance(plan, measured_balance)
    except ModelError as error:
        check_balance(plan, estimated_balance)
        layers = ",".join(map(str, measured_balance))
        return estimated_balance, f"by estimated cost; by times it would be {layers}, but {error}"
    return measured_balance, "by the layers' times on rank 0"


def move_ends_to_maps(plan: ModelPlan, balance: Balance) -> Balance:
    """Move ends of an imported network's tiled stages back until they are in maps.

    After the maps there are vectors, which every rank has completely: no other stage could receive
    them from one rank.
    """
    if not isinstance(plan.model, ImportedModel):
        return balance
    ends = [last for _, last in list_layer_ranges(balance)]
    for index, stage in enumerate(plan.layout.stages[:-1]):
        first_end = ends[index - 1] + 1 if index else 1
        while ends[index] > first_end and not has_pixels(plan.model.flows[ends[index]], stage.grid):
            ends[index] -= 1
    return tuple(end - before for before, end in pairwise((0, *ends)))


def _estimate_slowest_stage(
    costs: list[float], ranks_by_stage: list[int], balance: Balance
) -> float:
    pairs = zip(list_layer_ranges(balance), ranks_by_stage, strict=True)
    return max(sum(costs[first:last]) / rank_count for (first, last), rank_count in pairs)


def check_balance(plan: ModelPlan, balance: Balance) -> None:
    """Check that tiled stages begin and end in maps with a pixel for each tile.

    Raises:
        ModelError: A stage has fewer pixels than tiles, or fewer layers than are to be fused.
    """
    layer_count = len(plan.model.layers)
    for index, (first, last) in enumerate(list_layer_ranges(balance)):
        grid = plan.layout.stages[index].grid
        check_tiles(index, grid, plan.model, first)
        if isinstance(plan.model, ImportedModel) and last < layer_count:
            # Its outputs must be tiled, too. In other models all stages end in maps.
            check_tiles(index + 1, grid, plan.model, last)
    check_fused(replace(plan, balance=balance))
