"""Baselines of a plan: data parallelism, and the pipelines of PipeDream and GPipe.

The three ways of data parallelism are HPGO's. Its overlap credits each device with the whole
batch's backward pass (src/layerwise/analysis/cc_overlap.rs, parallelism/gradient_accumulation.rs).
The straight pipeline is PipeDream's: one device per stage, in order, with the least block, by
HPGO's estimate. GPipe's pipeline has the cuts that make its slowest stage as fast as possible, and
recomputes all activations. It runs all forward passes before all backward passes. The ``M``
micro-batches go through stages and links one after another. So the passes of each direction take
the sum of one micro-batch's times, plus ``M - 1`` times the longest of these.
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
from spbench.planner.plans import Baseline, Training
from spbench.planner.profile.states import States

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
    """Return the five other ways to train a model, from HPGO's problem."""
    work, links, straight = problem
    return (
        *_estimate_data_parallel(states, cluster, work, links),
        _estimate_straight(work, links, straight),
        _estimate_gpipe(states, work, links),
    )


def _estimate_data_parallel(
    states: States, cluster: Cluster, work: HpgoWork, links: HpgoLinks
) -> tuple[Baseline, ...]:
    all_devices = DeviceGroup((0,) * len(links.sizes), links.sizes)
    rate = links.all_reduce(all_devices)
    shared_s = work.total / sum(links.sizes)
    plain = _baseline_of_time(work, DP_PLAIN, shared_s + rate * float(work.parameters[-1]))
    share = compute_iteration_share(states, cluster, work.training)
    if share is None:
        reason = "one sample does not fit on a device"
        return plain, *(Baseline(name, None, None, reason) for name in (DP_OVERLAP, DP_P3))
    hidden = (
        _baseline_of_time(
            work, name, shared_s + compute_exposed_all_reduce(work, rate, share, across_steps)
        )
        for name, across_steps in ((DP_OVERLAP, False), (DP_P3, True))
    )
    return plain, *hidden


def _baseline_of_time(work: HpgoWork, name: str, seconds: float) -> Baseline:
    return Baseline(name, seconds, work.total / seconds)


def compute_iteration_share(states: States, cluster: Cluster, training: Training) -> float | None:
    """Return the share of the global batch that one accumulation iteration takes.

    HPGO takes the first number of iterations, up to half of the batch, that divides the batch and
    leaves a part that fits on one device next to the parameters. None if no sample fits.
    """
    batch = training.global_batch_size
    memory = cluster.kinds[0].memory_bytes
    if memory is None:
        return 1.0
    peak = training.peak_activation_bytes
    if peak is None:
        peak = states.activation_bytes[-1] / states.profile.batch_size
    free = memory - training.optimizer_memory_scaling * states.parameter_bytes[-1]
    max_samples = math.floor(free / peak) if peak else batch
    if max_samples >= batch:
        return 1.0
    if max_samples < 1:
        return None
    count = math.ceil(batch / max_samples)
    while count < batch // 2 + 1 and batch % count:
        count += 1
    return batch // count / batch


def compute_exposed_all_reduce(
    work: HpgoWork, rate: float, share: float, across_steps: bool
) -> float:
    """Return the seconds of all-reduce behind the backward pass of an iteration.

    Args:
        work: The model.
        rate: Seconds of an all-reduce for each byte.
        share: The share of the global batch that an iteration takes.
        across_steps: Whether the next step's forward pass hides it as well (P3).

    The backward pass of the layer before hides the all-reduce of a layer. With P3, HPGO adds the
    forward pass of the layer that is as far from the other end of the model as that one.
    """
    compute = _differences(work.compute.tolist())
    sizes = _differences(work.parameters.tolist())[::-1]
    half = [seconds * share / 2.0 for seconds in compute]
    offset = rate * sizes[-1]
    excess = 0.0
    for layer in range(len(half) - 2, -1, -1):
        hidden_s = half[::-1][layer + 1] + (half[layer + 1] if across_steps else 0.0)
        lack = rate * sizes[layer] - hidden_s
        if lack <= 0 or lack < excess:
            excess -= lack
        else:
            offset += lack - excess
            excess = 0.0
    return offset


def _differences(sums: Sequence[float]) -> list[float]:
    return [after - before for before, after in zip([0.0, *sums], sums, strict=False)]


def _estimate_straight(
    work: HpgoWork, links: HpgoLinks, candidate: HpgoCandidate | None
) -> Baseline:
    if candidate is None:
        return _too_few_states(STRAIGHT, work, links)
    seconds = estimate_hpgo_step(work, links, candidate)
    return Baseline(
        STRAIGHT, seconds, work.total / seconds, stages=_pipeline_stages(candidate, links)
    )


def _too_few_states(name: str, work: HpgoWork, links: HpgoLinks) -> Baseline:
    return Baseline(name, None, None, explain_too_few_states(work, links))


def _pipeline_stages(
    candidate: HpgoCandidate, links: HpgoLinks
) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    ends = [cut + 1 for cut in candidate.cuts]
    groups = [group.devices(links.sizes) for group in candidate.groups]
    return tuple(zip([0, *ends[:-1]], ends, groups, strict=True))


def _estimate_gpipe(states: States, work: HpgoWork, links: HpgoLinks) -> Baseline:
    free_links = HpgoLinks(links.sizes, math.inf, math.inf, math.inf)
    candidate = find_straight_pipeline(work, free_links)
    if candidate is None:
        return _too_few_states(GPIPE, work, links)
    micro = work.training.micro_batch_size
    count = work.micro_batches(1)
    samples_share = micro / states.profile.batch_size
    stages = _pipeline_stages(candidate, links)
    forward = [samples_share * states.range_sum(states.forward_s, a, b) for a, b, _ in stages]
    backward = [
        samples_share * states.range_sum(states.backward_s, a, b) + forward_s
        for (a, b, _), forward_s in zip(stages, forward, strict=True)
    ]
    message_s = [
        samples_share * states.crossing_bytes[cut] * links.transfer(a, b)
        for cut, a, b in zip(candidate.cuts, candidate.groups, candidate.groups[1:], strict=False)
    ]
    seconds = _flow_seconds([*forward, *message_s], count) + _flow_seconds(
        [*backward, *message_s], count
    )
    return Baseline(GPIPE, seconds, work.total / seconds, stages=stages)


def _flow_seconds(times: Sequence[float], count: int) -> float:
    """Return the seconds of `count` equal jobs that go through steps in turn."""
    return math.fsum(times) + (count - 1) * max(times)
