"""Baselines of a plan: data parallelism in three ways, PipeDream's pipeline and GPipe's.

The three are HPGO's, with its overlap that credits each device with the whole batch's backward
pass (src/layerwise/analysis/cc_overlap.rs, parallelism/gradient_accumulation.rs). The straight
pipeline is PipeDream's: a device a stage, in order, with the least block, by HPGO's estimate.
GPipe's has the least slowest stage of forward and backward, keeps no activations (its backward
pass recomputes them), and runs all forwards before all backwards, each as a flow through stages
and links in turn: the sum of one micro-batch's times and ``M - 1`` times the longest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoLinks, HpgoWork, estimate_hpgo_step
from spbench.planner.hpgo.straight import (
    HpgoProblem,
    build_problem,
    explain_too_few_states,
    find_straight_pipeline,
)
from spbench.planner.plans import Baseline
from spbench.planner.profile.states import States
from spbench.planner.training import Training

DP_PLAIN = "DP no overlap"
DP_OVERLAP = "DP + normal overlap"
DP_P3 = "DP + P3"
STRAIGHT = "straight pipeline"
GPIPE = "GPipe"


def estimate_training_baselines(
    states: States, cluster: Cluster, training: Training
) -> tuple[Baseline, ...]:
    """Return the five other ways to train a model on a cluster.

    Raises:
        PlannerError: The cluster has several kinds of devices or links.
    """
    return estimate_baselines(states, cluster, build_problem(states, cluster, training))


def estimate_baselines(
    states: States, cluster: Cluster, problem: HpgoProblem
) -> tuple[Baseline, ...]:
    """Return the same where HPGO's problem is known."""
    work, wires, straight = problem
    return (
        *_data_parallel(states, cluster, work, wires),
        _straight(work, wires, straight),
        _gpipe(states, work, wires),
    )


def _data_parallel(
    states: States, cluster: Cluster, work: HpgoWork, wires: HpgoLinks
) -> tuple[Baseline, ...]:
    everything = DeviceGroup((0,) * len(wires.sizes), wires.sizes)
    rate = wires.all_reduce(everything)
    shared = work.total / sum(wires.sizes)
    plain = _told(work, DP_PLAIN, shared + rate * float(work.parameters[-1]))
    part = iteration_share(states, cluster, work.training)
    if part is None:
        reason = "one sample does not fit on a device"
        return plain, *(Baseline(name, None, None, reason) for name in (DP_OVERLAP, DP_P3))
    overlapped = (
        _told(work, name, shared + exposed_all_reduce(work, rate, part, across_steps))
        for name, across_steps in ((DP_OVERLAP, False), (DP_P3, True))
    )
    return plain, *overlapped


def _told(work: HpgoWork, name: str, seconds: float) -> Baseline:
    return Baseline(name, seconds, work.total / seconds)


def iteration_share(states: States, cluster: Cluster, training: Training) -> float | None:
    """Return which part of the global batch one iteration of gradient accumulation takes.

    As much as fits on one device beside the parameters, as HPGO counts it: the batch over the
    first number of iterations that divides it, up to half of it. None where no sample fits.
    """
    batch = training.global_batch_size
    memory = cluster.kinds[0].memory_bytes
    if memory is None:
        return 1.0
    peak = training.peak_activation_bytes
    if peak is None:
        peak = states.activation_bytes[-1] / states.profile.batch_size
    free = memory - training.optimizer_memory_scaling * states.parameter_bytes[-1]
    most = math.floor(free / peak) if peak else batch
    if most >= batch:
        return 1.0
    if most < 1:
        return None
    count = math.ceil(batch / most)
    while count < batch // 2 + 1 and batch % count:
        count += 1
    return batch // count / batch


def exposed_all_reduce(work: HpgoWork, rate: float, part: float, across_steps: bool) -> float:
    """Return the seconds of all-reduce that the backward pass of an iteration does not hide.

    Args:
        work: The model.
        rate: Seconds of an all-reduce for each byte.
        part: Which part of the global batch an iteration takes.
        across_steps: Whether the next forward pass hides it as well (P3). As in HPGO, it is then
            the layer at the same distance from the other end that hides it.
    """
    compute = _differences(work.compute.tolist())
    sizes = _differences(work.parameters.tolist())[::-1]
    half = [seconds * part / 2.0 for seconds in compute]
    offset = rate * sizes[-1]
    excess = 0.0
    for at in range(len(half) - 2, -1, -1):
        slot = half[::-1][at + 1] + (half[at + 1] if across_steps else 0.0)
        short = rate * sizes[at] - slot
        if short <= 0 or short < excess:
            excess -= short
        else:
            offset += short - excess
            excess = 0.0
    return offset


def _differences(sums: Sequence[float]) -> list[float]:
    return [after - before for before, after in zip([0.0, *sums], sums, strict=False)]


def _straight(work: HpgoWork, wires: HpgoLinks, draft: HpgoCandidate | None) -> Baseline:
    if draft is None:
        return _too_few_states(STRAIGHT, work, wires)
    seconds = estimate_hpgo_step(work, wires, draft)
    return Baseline(STRAIGHT, seconds, work.total / seconds, stages=_stages_of(draft, wires))


def _too_few_states(name: str, work: HpgoWork, wires: HpgoLinks) -> Baseline:
    return Baseline(name, None, None, explain_too_few_states(work, wires))


def _stages_of(
    draft: HpgoCandidate, wires: HpgoLinks
) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    ends = [cut + 1 for cut in draft.cuts]
    groups = [group.devices(wires.sizes) for group in draft.groups]
    return tuple(zip([0, *ends[:-1]], ends, groups, strict=True))


def _gpipe(states: States, work: HpgoWork, wires: HpgoLinks) -> Baseline:
    free = HpgoLinks(wires.sizes, math.inf, math.inf, math.inf)
    draft = find_straight_pipeline(work, free)
    if draft is None:
        return _too_few_states(GPIPE, work, wires)
    micro = work.training.micro_batch_size
    count = work.micro_batches(1)
    share = micro / states.profile.batch_size
    stages = _stages_of(draft, wires)
    forward = [share * states.range_sum(states.forward_s, a, b) for a, b, _ in stages]
    again = [
        share * states.range_sum(states.backward_s, a, b) + ahead
        for (a, b, _), ahead in zip(stages, forward, strict=True)
    ]
    links = [
        share * states.crossing_bytes[cut] * wires.transfer(a, b)
        for cut, a, b in zip(draft.cuts, draft.groups, draft.groups[1:], strict=False)
    ]
    seconds = _flow([*forward, *links], count) + _flow([*again, *links], count)
    return Baseline(GPIPE, seconds, work.total / seconds, stages=stages)


def _flow(times: Sequence[float], count: int) -> float:
    """Return how long ``count`` equal jobs take through these steps, one after another."""
    return math.fsum(times) + (count - 1) * max(times)
