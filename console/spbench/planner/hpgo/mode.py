"""Mode ``hpgo``: the plan of DAPPLE's planner, with the same estimates."""

from __future__ import annotations

from operator import itemgetter

from spbench.planner.cluster.machines import Cluster
from spbench.planner.hpgo.baselines import estimate_baselines
from spbench.planner.hpgo.candidates import generate_candidates
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoCluster, HpgoModel, estimate_hpgo_step
from spbench.planner.hpgo.straight import build_problem
from spbench.planner.plans import Plan, PlanStage, Training
from spbench.planner.profile.antichains import find_antichain_states
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.states import States
from spbench.planner.simulation.memory import compute_device_memory
from spbench_core.schedule.orders import count_in_flight


def plan_hpgo(profile: Profile, cluster: Cluster, training: Training) -> Plan:
    """Return HPGO's plan of a profile on a cluster.

    Raises:
        PlannerError: The profile has too many states, or the cluster has several kinds of
            devices or links.
    """
    return search_hpgo(find_antichain_states(profile), cluster, training)


def search_hpgo(states: States, cluster: Cluster, training: Training) -> Plan:
    """Return the best plan in HPGO's search over these states.

    Raises:
        PlannerError: The cluster has several kinds of devices or links.
    """
    problem = build_problem(states, cluster, training)
    model, hpgo_cluster, straight = problem
    timed_candidates = [
        (estimate_hpgo_step(model, hpgo_cluster, candidate), candidate)
        for candidate in generate_candidates(model, hpgo_cluster, straight)
    ]
    # HPGO takes the last of equally fast plans.
    step_s, best = min(reversed(timed_candidates), key=itemgetter(0))
    return Plan(
        mode="hpgo",
        profile=states.profile.name,
        cluster=cluster.name,
        state_names=states.names,
        global_batch_size=training.global_batch_size,
        micro_batch_size=training.micro_batch_size,
        micro_batches=model.count_micro_batches(best.pipelines),
        schedule="1f1b",
        pipelines=best.pipelines,
        step_s=step_s,
        single_s=model.total_s,
        stages=_build_stages(states, model, hpgo_cluster, best),
        baselines=estimate_baselines(states, cluster, problem),
        measured_batches=states.profile.batch_sizes,
    )


def _build_stages(
    states: States, model: HpgoModel, hpgo_cluster: HpgoCluster, candidate: HpgoCandidate
) -> tuple[PlanStage, ...]:
    """Return a candidate's stages, for one micro-batch of one pipeline."""
    ends = [cut + 1 for cut in candidate.cuts]
    starts = [0, *ends[:-1]]
    micro_batches = model.count_micro_batches(candidate.pipelines)
    training = model.training
    stages = []
    for stage, (start, end, group) in enumerate(zip(starts, ends, candidate.groups, strict=True)):
        workers = group.size / candidate.pipelines
        samples_per_worker = training.micro_batch_size / workers
        batch_share = samples_per_worker / states.profile.batch_size
        memory = compute_device_memory(
            states, start, end, samples_per_worker, training.optimizer_memory_scaling
        )
        stages.append(
            PlanStage(
                start=start,
                end=end,
                devices=group.list_devices(hpgo_cluster.sizes),
                forward_s=batch_share * states.sum_range(states.forward_s, start, end),
                backward_s=batch_share * states.sum_range(states.backward_s, start, end),
                send_s=_compute_send_s(model, hpgo_cluster, candidate, stage),
                all_reduce_s=hpgo_cluster.compute_all_reduce_s_per_byte(group)
                * model.sum_parameter_bytes(start, end - 1),
                memory_bytes=memory.compute_peak_bytes(
                    count_in_flight("1f1b", stage, len(ends), micro_batches)
                ),
                fixed_bytes=memory.fixed_bytes,
                bytes_per_micro_batch=memory.bytes_per_micro_batch,
                working_bytes=memory.working_bytes,
            )
        )
    return tuple(stages)


def _compute_send_s(
    model: HpgoModel, hpgo_cluster: HpgoCluster, candidate: HpgoCandidate, stage: int
) -> float:
    if stage + 1 == len(candidate.groups):
        return 0.0
    step_micro_batches = candidate.pipelines * model.count_micro_batches(candidate.pipelines)
    seconds_per_byte = hpgo_cluster.compute_transfer_s_per_byte(
        candidate.groups[stage], candidate.groups[stage + 1]
    )
    return (
        seconds_per_byte * float(model.crossing_bytes[candidate.cuts[stage]]) / step_micro_batches
    )
