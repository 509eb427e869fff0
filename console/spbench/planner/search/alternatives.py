"""Other ways to train a model, estimated with the cost model of mode ``best``.

Mode ``best`` also searches these shapes, so no plan is slower than one of them. Plans of mode
``hpgo`` have HPGO's estimates instead (`hpgo.baselines`), which scale all times with the batch and
hide more of an all-reduce than is possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.errors import PlannerError
from spbench.planner.hpgo.baselines import DP_OVERLAP, DP_P3, DP_PLAIN, GPIPE, STRAIGHT_PIPELINE
from spbench.planner.hpgo.costs import (
    HpgoCandidate,
    HpgoCluster,
    HpgoModel,
    build_hpgo_cluster,
    build_hpgo_model,
)
from spbench.planner.hpgo.straight import explain_too_few_states, find_straight_pipeline
from spbench.planner.plans import Baseline
from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.stage_times import compute_recomputing_stages, compute_stages
from spbench_core.number_text import format_quantity
from spbench_core.schedule.orders import StageSchedule
from spbench_core.schedule.timetable import compute_step_end

_NO_P3 = "spbench cannot run it: it sums gradients during the next step"
_NO_FIT = "it does not fit the memory of the devices"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to train the model.

    Attributes:
        name: Its name in tables.
        shape: Its stages; None if ``reason`` explains why it has none.
        sizes: The micro-batch sizes that it can have.
        schedule: The order of its passes.
        overlaps: Whether an all-reduce of the whole model overlaps with the backward pass.
        recomputes: Whether every stage recomputes its activations.
    """

    name: str
    shape: Shape | None
    sizes: tuple[int, ...] = ()
    schedule: StageSchedule = "1f1b"
    overlaps: bool = True
    recomputes: bool = False
    reason: str = ""


def list_alternatives(cost_model: CostModel, sizes: Sequence[int]) -> list[Alternative]:
    """Return the other ways to train a model, with or without a shape.

    Args:
        cost_model: The costs.
        sizes: The allowed micro-batch sizes.
    """
    return [*_list_data_parallel(cost_model, sizes), *_list_pipelines(cost_model, sizes)]


def estimate_baseline(cost_model: CostModel, alternative: Alternative, single_s: float) -> Baseline:
    """Return an alternative with its step time at its best micro-batch size.

    Args:
        cost_model: The costs.
        alternative: The alternative.
        single_s: Seconds of the whole batch on one device.
    """
    name = alternative.name
    shape = alternative.shape
    if shape is None:
        return Baseline(name, None, None, alternative.reason)
    step_s = min(
        _compute_step_s(cost_model, alternative, shape, size) for size in alternative.sizes
    )
    if step_s == math.inf:
        return Baseline(name, None, None, _NO_FIT)
    stages = tuple(
        (start, end, group.list_devices(cost_model.cluster.sizes))
        for start, end, group in shape.spans
    )
    return Baseline(name, step_s, single_s / step_s, stages=stages if len(stages) > 1 else ())


def _compute_step_s(
    cost_model: CostModel, alternative: Alternative, shape: Shape, micro_batch_size: int
) -> float:
    """Return the seconds of a step; infinite if it does not fit."""
    candidate = Candidate(shape, micro_batch_size, alternative.schedule)
    if alternative.recomputes:
        stages = compute_recomputing_stages(cost_model, candidate)
    else:
        stages = compute_stages(cost_model, candidate)
    if stages is None:
        return math.inf
    if not alternative.overlaps:
        start, end, group = shape.spans[0]
        all_reduce_s = cost_model.get_stage_cost(group, start, end, micro_batch_size).all_reduce_s
        stages = [stages[0]._replace(all_reduce_s=all_reduce_s, overlapped_s=0.0)]
    micro_batches = cost_model.training.global_batch_size // micro_batch_size
    return compute_step_end(stages, alternative.schedule, micro_batches)


def _list_data_parallel(cost_model: CostModel, sizes: Sequence[int]) -> Iterator[Alternative]:
    """Yield the whole model on all devices, which share each micro-batch."""
    cluster = cost_model.cluster
    device_count = cluster.device_count
    sharable_sizes = tuple(size for size in sizes if size >= device_count)
    if not sharable_sizes:
        sharers = format_quantity(device_count, "device")
        reason = f"a micro-batch of {max(sizes)} cannot be shared by {sharers}"
        yield from (Alternative(name, None, reason=reason) for name in (DP_PLAIN, DP_OVERLAP))
    else:
        all_devices = DeviceGroup((0,) * len(cluster.sizes), cluster.sizes)
        shape = Shape((len(cost_model.states),), (all_devices,))
        yield Alternative(DP_PLAIN, shape, sharable_sizes, overlaps=False)
        yield Alternative(DP_OVERLAP, shape, sharable_sizes)
    yield Alternative(DP_P3, None, reason=_NO_P3)


def _list_pipelines(cost_model: CostModel, sizes: Sequence[int]) -> Iterator[Alternative]:
    """Yield pipelines of one device per stage, in the order of the devices."""
    try:
        hpgo_cluster = build_hpgo_cluster(cost_model.cluster)
    except PlannerError:
        reason = "its cuts are known only for devices and links of one kind"
        yield from (Alternative(name, None, reason=reason) for name in (STRAIGHT_PIPELINE, GPIPE))
        return
    model = build_hpgo_model(cost_model.states, cost_model.training)
    unlimited_cluster = HpgoCluster(hpgo_cluster.sizes, math.inf, math.inf, math.inf)
    straight = Alternative(STRAIGHT_PIPELINE, None, tuple(sizes))
    gpipe = Alternative(GPIPE, None, tuple(sizes), schedule="gpipe", recomputes=True)
    yield _find_best_cuts(straight, model, hpgo_cluster)
    yield _find_best_cuts(gpipe, model, unlimited_cluster)


def _find_best_cuts(
    alternative: Alternative, model: HpgoModel, hpgo_cluster: HpgoCluster
) -> Alternative:
    """Return a pipeline with the best cuts for a cluster, or why it has none."""
    candidate = find_straight_pipeline(model, hpgo_cluster)
    if candidate is None:
        return replace(alternative, reason=explain_too_few_states(model, hpgo_cluster))
    return replace(alternative, shape=to_shape(candidate))


def to_shape(candidate: HpgoCandidate) -> Shape:
    """Return the shape of HPGO's candidate; its cuts are the last states of stages."""
    return Shape(tuple(cut + 1 for cut in candidate.cuts), candidate.groups)
