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
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoCluster, HpgoModel, estimate_hpgo_step
from spbench.planner.hpgo.straight import (
    HpgoProblem,
    explain_too_few_states,
    find_straight_pipeline,
)
from spbench.planner.plans import Baseline, Training
from spbench.planner.profile.states import States

DP_PLAIN = "DP no overlap"
DP_OVERLAP = "DP + normal overlap"
DP_P3 = "DP + P3"
STRAIGHT_PIPELINE = "straight pipeline"
GPIPE = "GPipe"


def estimate_baselines(
    states: States, cluster: Cluster, problem: HpgoProblem
) -> tuple[Baseline, ...]:
    """Return the five other ways to train a model on a cluster, from HPGO's problem."""
    model, hpgo_cluster, straight = problem
    return (
        *_estimate_data_parallel(states, cluster, model, hpgo_cluster),
        _estimate_straight(model, hpgo_cluster, straight),
        _estimate_gpipe(states, model, hpgo_cluster),
    )


def _estimate_data_parallel(
    states: States, cluster: Cluster, model: HpgoModel, hpgo_cluster: HpgoCluster
) -> tuple[Baseline, ...]:
    all_devices = DeviceGroup((0,) * len(hpgo_cluster.sizes), hpgo_cluster.sizes)
    all_reduce_s_per_byte = hpgo_cluster.compute_all_reduce_s_per_byte(all_devices)
    passes_s = model.total_s / sum(hpgo_cluster.sizes)
    without_overlap = _make_baseline(
        model, DP_PLAIN, passes_s + all_reduce_s_per_byte * float(model.parameters_so_far[-1])
    )
    iteration_share = compute_iteration_share(states, cluster, model.training)
    if iteration_share is None:
        reason = "one sample does not fit on a device"
        return without_overlap, *(
            Baseline(name, None, None, reason) for name in (DP_OVERLAP, DP_P3)
        )
    with_overlap = (
        _make_baseline(
            model,
            name,
            passes_s
            + compute_exposed_all_reduce_s(
                model, all_reduce_s_per_byte, iteration_share, across_steps
            ),
        )
        for name, across_steps in ((DP_OVERLAP, False), (DP_P3, True))
    )
    return without_overlap, *with_overlap


def _make_baseline(model: HpgoModel, name: str, step_s: float) -> Baseline:
    return Baseline(name, step_s, model.total_s / step_s)


def compute_iteration_share(states: States, cluster: Cluster, training: Training) -> float | None:
    """Return the share of the global batch that one accumulation iteration takes.

    HPGO takes the first number of iterations, up to half of the batch, that divides the batch and
    leaves a part that fits on one device next to the parameters. None if no sample fits.
    """
    batch = training.global_batch_size
    memory_bytes = cluster.kinds[0].memory_bytes
    if memory_bytes is None:
        return 1.0
    bytes_per_sample = training.peak_activation_bytes
    if bytes_per_sample is None:
        bytes_per_sample = states.activation_bytes[-1] / states.profile.batch_size
    free_bytes = memory_bytes - training.optimizer_memory_scaling * states.parameter_bytes[-1]
    max_samples = math.floor(free_bytes / bytes_per_sample) if bytes_per_sample else batch
    if max_samples >= batch:
        return 1.0
    if max_samples < 1:
        return None
    iterations = math.ceil(batch / max_samples)
    while iterations < batch // 2 + 1 and batch % iterations:
        iterations += 1
    return batch // iterations / batch


def compute_exposed_all_reduce_s(
    model: HpgoModel, seconds_per_byte: float, batch_share: float, across_steps: bool
) -> float:
    """Return the seconds of all-reduce behind the backward pass of an iteration.

    Args:
        model: The model.
        seconds_per_byte: Seconds of an all-reduce for each byte.
        batch_share: The share of the global batch that an iteration takes.
        across_steps: Whether the next step's forward pass hides it as well (P3).

    The backward pass of the layer before hides the all-reduce of a layer. With P3, HPGO adds the
    forward pass of the layer that is as far from the other end of the model as that one.
    """
    layer_s = _compute_differences(model.compute_s.tolist())
    bytes_from_last = _compute_differences(model.parameters_so_far.tolist())[::-1]
    pass_s = [seconds * batch_share / 2.0 for seconds in layer_s]
    exposed_s = seconds_per_byte * bytes_from_last[-1]
    spare_s = 0.0
    for layer in range(len(pass_s) - 2, -1, -1):
        hidden_s = pass_s[::-1][layer + 1] + (pass_s[layer + 1] if across_steps else 0.0)
        uncovered_s = seconds_per_byte * bytes_from_last[layer] - hidden_s
        if uncovered_s <= 0 or uncovered_s < spare_s:
            spare_s -= uncovered_s
        else:
            exposed_s += uncovered_s - spare_s
            spare_s = 0.0
    return exposed_s


def _compute_differences(sums: Sequence[float]) -> list[float]:
    return [
        sum_after - sum_before for sum_before, sum_after in zip([0.0, *sums], sums, strict=False)
    ]


def _estimate_straight(
    model: HpgoModel, hpgo_cluster: HpgoCluster, candidate: HpgoCandidate | None
) -> Baseline:
    if candidate is None:
        return _make_infeasible_baseline(STRAIGHT_PIPELINE, model, hpgo_cluster)
    step_s = estimate_hpgo_step(model, hpgo_cluster, candidate)
    return Baseline(
        STRAIGHT_PIPELINE,
        step_s,
        model.total_s / step_s,
        stages=_list_pipeline_stages(candidate, hpgo_cluster),
    )


def _make_infeasible_baseline(name: str, model: HpgoModel, hpgo_cluster: HpgoCluster) -> Baseline:
    return Baseline(name, None, None, explain_too_few_states(model, hpgo_cluster))


def _list_pipeline_stages(
    candidate: HpgoCandidate, hpgo_cluster: HpgoCluster
) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    ends = [cut + 1 for cut in candidate.cuts]
    groups = [group.list_devices(hpgo_cluster.sizes) for group in candidate.groups]
    return tuple(zip([0, *ends[:-1]], ends, groups, strict=True))


def _estimate_gpipe(states: States, model: HpgoModel, hpgo_cluster: HpgoCluster) -> Baseline:
    unlimited_cluster = HpgoCluster(hpgo_cluster.sizes, math.inf, math.inf, math.inf)
    candidate = find_straight_pipeline(model, unlimited_cluster)
    if candidate is None:
        return _make_infeasible_baseline(GPIPE, model, hpgo_cluster)
    micro_batch_size = model.training.micro_batch_size
    micro_batches = model.count_micro_batches(1)
    samples_share = micro_batch_size / states.profile.batch_size
    stages = _list_pipeline_stages(candidate, hpgo_cluster)
    forward_s_by_stage = [
        samples_share * states.sum_range(states.forward_s, start, end) for start, end, _ in stages
    ]
    backward_s_by_stage = [
        samples_share * states.sum_range(states.backward_s, start, end) + forward_s
        for (start, end, _), forward_s in zip(stages, forward_s_by_stage, strict=True)
    ]
    message_s_by_cut = [
        samples_share
        * states.crossing_bytes[cut]
        * hpgo_cluster.compute_transfer_s_per_byte(source, target)
        for cut, source, target in zip(
            candidate.cuts, candidate.groups, candidate.groups[1:], strict=False
        )
    ]
    step_s = _compute_flow_s(
        [*forward_s_by_stage, *message_s_by_cut], micro_batches
    ) + _compute_flow_s([*backward_s_by_stage, *message_s_by_cut], micro_batches)
    return Baseline(GPIPE, step_s, model.total_s / step_s, stages=stages)


def _compute_flow_s(seconds_by_step: Sequence[float], jobs: int) -> float:
    """Return the seconds of `jobs` equal jobs that go through steps in turn."""
    return math.fsum(seconds_by_step) + (jobs - 1) * max(seconds_by_step)
