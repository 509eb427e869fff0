"""Other ways to train a model, estimated with the costs and the micro-batch sizes of a plan.

Mode ``best`` also offers these shapes to its search, so no plan is slower than one of them. Plans
of mode ``hpgo`` have HPGO's estimates instead (`hpgo.baselines`). These scale all times by the
batch, and hide more of an all-reduce than can be hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.errors import PlannerError
from spbench.planner.hpgo.baselines import DP_OVERLAP, DP_P3, DP_PLAIN, GPIPE, STRAIGHT
from spbench.planner.hpgo.costs import HpgoLinks, HpgoWork, build_hpgo_links, build_hpgo_work
from spbench.planner.hpgo.straight import explain_too_few_states, find_straight_pipeline
from spbench.planner.plans import Baseline
from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.seeds import to_shape
from spbench.planner.search.stage_times import compute_passes, compute_recomputing_passes
from spbench_core.quantities import format_quantity
from spbench_core.schedule.orders import StageSchedule
from spbench_core.schedule.timetable import compute_step_end

_NO_P3 = "spbench cannot run it: it sums gradients during the next step"
_NO_FIT = "it does not fit the memory of the devices"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to train the model.

    Attributes:
        name: Its name in tables.
        shape: Its stages; None if ``reason`` says why there are none.
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
        sizes: The micro-batch sizes that are allowed.
    """
    return [*_data_parallel(cost_model, sizes), *_pipelines(cost_model, sizes)]


def estimate_baseline(cost_model: CostModel, way: Alternative, single_s: float) -> Baseline:
    """Return an alternative with its step at the micro-batch size that is best for it.

    Args:
        cost_model: The costs.
        way: The alternative.
        single_s: Seconds of the whole batch on one device.
    """
    if way.shape is None:
        return Baseline(way.name, None, None, way.reason)
    step_s = min(_step_s(cost_model, way, way.shape, size) for size in way.sizes)
    if step_s == math.inf:
        return Baseline(way.name, None, None, _NO_FIT)
    stages = tuple(
        (start, end, group.devices(cost_model.cluster.sizes))
        for start, end, group in way.shape.spans
    )
    return Baseline(way.name, step_s, single_s / step_s, stages=stages if len(stages) > 1 else ())


def _step_s(cost_model: CostModel, way: Alternative, shape: Shape, micro_batch: int) -> float:
    """Return the seconds of a step; infinite if it does not fit."""
    candidate = Candidate(shape, micro_batch, way.schedule)
    if way.recomputes:
        times = compute_recomputing_passes(cost_model, candidate)
    else:
        times = compute_passes(cost_model, candidate)
    if times is None:
        return math.inf
    if not way.overlaps:
        start, end, group = shape.spans[0]
        reduce = cost_model.stage_cost(group, start, end, micro_batch).all_reduce_s
        times = [times[0]._replace(all_reduce_s=reduce, overlapped_s=0.0)]
    count = cost_model.training.global_batch_size // micro_batch
    return compute_step_end(times, way.schedule, count)


def _data_parallel(cost_model: CostModel, sizes: Sequence[int]) -> Iterator[Alternative]:
    """Yield the whole model on all devices, which share each micro-batch."""
    cluster = cost_model.cluster
    devices = cluster.device_count
    shared = tuple(size for size in sizes if size >= devices)
    if not shared:
        sharers = format_quantity(devices, "device")
        reason = f"a micro-batch of {max(sizes)} cannot be shared by {sharers}"
        yield from (Alternative(name, None, reason=reason) for name in (DP_PLAIN, DP_OVERLAP))
    else:
        everything = DeviceGroup((0,) * len(cluster.sizes), cluster.sizes)
        whole = Alternative(DP_OVERLAP, Shape((len(cost_model.states),), (everything,)), shared)
        yield replace(whole, name=DP_PLAIN, overlaps=False)
        yield whole
    yield Alternative(DP_P3, None, reason=_NO_P3)


def _pipelines(cost_model: CostModel, sizes: Sequence[int]) -> Iterator[Alternative]:
    """Yield pipelines of one device a stage, in the devices' order."""
    states = cost_model.states
    cluster = cost_model.cluster
    try:
        wires = build_hpgo_links(cluster)
    except PlannerError:
        reason = "its cuts are known only for devices and links of one kind"
        yield from (Alternative(name, None, reason=reason) for name in (STRAIGHT, GPIPE))
        return
    work = build_hpgo_work(states, cost_model.training)
    free = HpgoLinks(wires.sizes, math.inf, math.inf, math.inf)
    yield _pipeline(Alternative(STRAIGHT, None, tuple(sizes)), work, wires)
    yield _pipeline(
        Alternative(GPIPE, None, tuple(sizes), schedule="gpipe", recomputes=True), work, free
    )


def _pipeline(way: Alternative, work: HpgoWork, wires: HpgoLinks) -> Alternative:
    """Return a pipeline with the cuts that are best for these links."""
    draft = find_straight_pipeline(work, wires)
    if draft is None:
        return replace(way, reason=explain_too_few_states(work, wires))
    return replace(way, shape=to_shape(draft))
