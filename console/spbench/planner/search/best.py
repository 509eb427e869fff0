"""Mode ``best``: the plan with the shortest step that fits the devices' memory.

The steps of the search:

1. `alternatives` offers the other ways to train in the plan's table, and HPGO's shapes.
2. `periods` finds good shapes at each micro-batch size.
3. `shape_lists` gives each group of the best shapes several stages.
4. `local_search` changes the best shapes as long as that helps.
5. If the problem is small, all shapes are tried.

The plan is the shape with the shortest simulated step.
"""

from __future__ import annotations

from collections.abc import Iterable

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import Placements
from spbench.planner.cluster.placement_graph import PlacementGraph, build_placement_graph
from spbench.planner.errors import NoPlanError, PlannerError
from spbench.planner.hpgo.candidates import generate_candidates
from spbench.planner.hpgo.costs import build_hpgo_cluster, build_hpgo_model, estimate_hpgo_step
from spbench.planner.hpgo.straight import find_straight_pipeline
from spbench.planner.plans import OtherPipeline, Plan, Training
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.profile.states import States
from spbench.planner.search.alternatives import (
    Alternative,
    estimate_baseline,
    list_alternatives,
    to_shape,
)
from spbench.planner.search.candidates import Shape, SizedShape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.fitting import find_fitting_shape
from spbench.planner.search.local_search import improve_candidates
from spbench.planner.search.periods import PeriodSearch
from spbench.planner.search.scoring import CandidateScores
from spbench.planner.search.shape_lists import (
    count_shapes,
    enumerate_shapes,
    make_interleavings,
)
from spbench.planner.search.stage_messages import choose_skip_route
from spbench.planner.search.stage_times import build_plan_stages

MAX_FEW_GROUPS = 220
MAX_ALL_GROUPS = 900
MAX_ENUMERATED_SHAPES = 4000
"""The most shapes of a problem for which all shapes are tried."""
# With more devices, HPGO's search takes minutes for models of many equal layers.
_MAX_HPGO_DEVICES = 128
_MAX_HPGO_SHAPES = 600
"""The most shapes of HPGO that are tried, fastest first by HPGO's estimate."""


def plan_best(
    profile: Profile, cluster: Cluster, training: Training, *, choose_micro_batch: bool = True
) -> Plan:
    """Return the plan with the shortest step that fits.

    Args:
        profile: The model.
        cluster: The cluster.
        training: The parameters of the step.
        choose_micro_batch: Whether to choose the micro-batch size instead of using the step's.

    Raises:
        NoPlanError: No plan fits.
    """
    return search_best(find_linear_states(profile), cluster, training, choose_micro_batch)


def search_best(
    states: States, cluster: Cluster, training: Training, choose_micro_batch: bool = True
) -> Plan:
    """Return the best plan over these states, each of which must follow all before it.

    Raises:
        NoPlanError: No plan fits.
    """
    cost_model = CostModel(states, cluster, training)
    sizes = [training.micro_batch_size]
    if choose_micro_batch:
        sizes = _list_divisors(training.global_batch_size)
    alternatives = list_alternatives(cost_model, sizes)
    scores = find_best(cost_model, sizes, others=alternatives)
    assert scores.best is not None  # `find_best` raises otherwise

    candidate = scores.best
    sequential_s = cost_model.compute_sequential_s(
        candidate.shape.spans, candidate.micro_batch_size
    )
    single_s = min(cost_model.compute_single_s(sizes), sequential_s)
    return Plan(
        mode="best",
        profile=states.profile.name,
        cluster=cluster.name,
        state_names=states.names,
        global_batch_size=training.global_batch_size,
        micro_batch_size=candidate.micro_batch_size,
        micro_batches=scores.count_micro_batches(candidate.micro_batch_size),
        schedule=candidate.schedule,
        pipelines=1,
        step_s=scores.step_s,
        single_s=single_s,
        stages=build_plan_stages(cost_model, candidate, scores.times),
        baselines=tuple(
            estimate_baseline(cost_model, alternative, single_s) for alternative in alternatives
        ),
        skips=choose_skip_route(cost_model, candidate.shape, candidate.micro_batch_size),
        measured_batches=states.profile.batch_sizes,
        searched_count=scores.shape_count,
        other_pipeline=_describe_other_pipeline(scores),
    )


def _describe_other_pipeline(scores: CandidateScores) -> OtherPipeline | None:
    """Return the fastest pipeline with another number of stages, or None."""
    other = scores.find_other_pipeline()
    if other is None:
        return None
    sizes = scores.cost_model.cluster.sizes
    device_counts = tuple(len(group.list_devices(sizes)) for group in other.shape.groups)
    return OtherPipeline(other.step_s, device_counts, len(other.shape.ends))


def _list_divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if not number % divisor]


def find_best(
    cost_model: CostModel,
    sizes: list[int],
    max_enumerated_shapes: int = MAX_ENUMERATED_SHAPES,
    others: Iterable[Alternative] = (),
) -> CandidateScores:
    """Return the scores of a complete search; their best candidate is set.

    Args:
        cost_model: The costs.
        sizes: The allowed micro-batch sizes, rising.
        max_enumerated_shapes: The most shapes of a problem for which all shapes are tried.
        others: The other ways in the plan's table; the best candidate is never slower than these.

    Raises:
        NoPlanError: No candidate fits.
    """
    scores = CandidateScores(cost_model)
    for alternative in others:
        if alternative.shape is not None:
            scores.offer_all(SizedShape(alternative.shape, size) for size in alternative.sizes)
    hpgo_shapes = find_hpgo_shapes(cost_model.states, cost_model.cluster, cost_model.training)
    for size in sizes:
        scores.offer_all(SizedShape(shape, size) for shape in hpgo_shapes)

    placements = Placements(cost_model.cluster.sizes)
    state_count = len(cost_model.states)
    all_groups = build_placement_graph(placements, MAX_ALL_GROUPS, state_count)
    few_groups = build_placement_graph(placements, MAX_FEW_GROUPS, state_count)
    PeriodSearch(scores, all_groups, few_groups, sizes).run()

    error = _offer_fitting(scores, all_groups, sizes[0]) if scores.best is None else None
    scores.offer_all(make_interleavings(scores, placements, sizes))
    improve_candidates(scores, placements, sizes)
    if all_groups.unit == 1 and count_shapes(state_count, all_groups) <= max_enumerated_shapes:
        every_shape = list(enumerate_shapes(state_count, all_groups))
        for size in sizes:
            scores.offer_all((SizedShape(shape, size) for shape in every_shape), ranked=False)
    if scores.best is None and error is not None:
        raise error
    return scores


def _offer_fitting(
    scores: CandidateScores, graph: PlacementGraph, micro_batch_size: int
) -> NoPlanError | None:
    """Offer the shape that needs the least memory; return an error if it does not fit."""
    try:
        shape = find_fitting_shape(scores.cost_model, graph, micro_batch_size)
    except NoPlanError as error:
        return error
    scores.offer(shape, micro_batch_size)
    return None


def find_hpgo_shapes(states: States, cluster: Cluster, training: Training) -> list[Shape]:
    """Return the shapes that mode ``hpgo`` scores, fastest first by HPGO's estimate.

    The search of mode ``best`` starts from them, so that it is never worse. The list is empty for
    large clusters, and for clusters with devices or links of several kinds.
    """
    if cluster.device_count > _MAX_HPGO_DEVICES:
        return []
    try:
        hpgo_cluster = build_hpgo_cluster(cluster)
    except PlannerError:
        return []  # HPGO does not support devices or links of several kinds
    model = build_hpgo_model(states, training)
    candidates = list(
        generate_candidates(model, hpgo_cluster, find_straight_pipeline(model, hpgo_cluster))
    )
    candidates.reverse()  # HPGO takes the last of equally fast plans
    candidates.sort(key=lambda candidate: estimate_hpgo_step(model, hpgo_cluster, candidate))
    return list(dict.fromkeys(map(to_shape, candidates[:_MAX_HPGO_SHAPES])))
