"""Mode ``best``: the plan with the shortest step that fits the devices' memory.

`alternatives` gives the other ways in a plan's table, and `seeds` gives HPGO's shapes. `bounded`
finds good shapes at each micro-batch size, first among few groups, then among all groups near the
best bounds. `rounds` gives the groups of good shapes several stages each. `improve` changes the
best shapes as long as that helps. In a small problem every shape is tried. The plan is the shape
with the shortest simulated step.
"""

from __future__ import annotations

from collections.abc import Iterable

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import Placements
from spbench.planner.cluster.placement_graph import PlacementGraph, build_placement_graph
from spbench.planner.errors import NoPlanError
from spbench.planner.plans import Plan
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.profile.states import States
from spbench.planner.search.alternatives import Alternative, estimate_baseline, list_alternatives
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.exhaustive import count_shapes, enumerate_shapes
from spbench.planner.search.fitting import find_fitting_shape
from spbench.planner.search.local_search import improve_candidates
from spbench.planner.search.periods import PeriodSearch
from spbench.planner.search.rounds import make_interleavings
from spbench.planner.search.scoring import CandidateScores
from spbench.planner.search.seeds import find_hpgo_shapes
from spbench.planner.search.stage_messages import choose_skip_route
from spbench.planner.search.stage_times import build_plan_stages
from spbench.planner.training import Training

FEW_GROUPS = 220
ALL_GROUPS = 900
SMALL = 4000
"""Shapes of a problem that is solved by looking at all of them."""


def plan_best(
    profile: Profile, cluster: Cluster, training: Training, *, choose_micro_batch: bool = True
) -> Plan:
    """Return the plan with the shortest step that fits.

    Args:
        profile: The model.
        cluster: The cluster.
        training: The step.
        choose_micro_batch: Whether to choose the micro-batch size, or take that of the step.

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
        sizes = _divisors(training.global_batch_size)
    ways = list_alternatives(cost_model, sizes)
    scores = find_best(cost_model, sizes, others=ways)
    assert scores.best is not None  # else there was an error
    candidate = scores.best
    pieces_s = cost_model.sequential_s(candidate.shape.spans, candidate.micro_batch)
    single_s = min(cost_model.single_s(sizes), pieces_s)
    return Plan(
        mode="best",
        profile=states.profile.name,
        cluster=cluster.name,
        state_names=states.names,
        global_batch_size=training.global_batch_size,
        micro_batch_size=candidate.micro_batch,
        micro_batches=scores.micro_batches(candidate.micro_batch),
        schedule=candidate.schedule,
        pipelines=1,
        step_s=scores.step_s,
        single_s=single_s,
        stages=build_plan_stages(cost_model, candidate, scores.times),
        baselines=tuple(estimate_baseline(cost_model, way, single_s) for way in ways),
        skips=choose_skip_route(cost_model, candidate.shape, candidate.micro_batch),
        measured_batches=states.profile.batch_sizes,
    )


def _divisors(count: int) -> list[int]:
    return [size for size in range(1, count + 1) if not count % size]


def find_best(
    cost_model: CostModel,
    sizes: list[int],
    small: int = SMALL,
    others: Iterable[Alternative] = (),
) -> CandidateScores:
    """Return the best candidate.

    Args:
        cost_model: The costs.
        sizes: The micro-batch sizes that are allowed, rising.
        small: Shapes of a problem that is solved by looking at all of them.
        others: The other ways in the plan's table; the result is never slower than one of them.

    Raises:
        NoPlanError: No candidate fits.
    """
    scores = CandidateScores(cost_model)
    for way in others:
        if way.shape is not None:
            scores.offer_all((way.shape, size) for size in way.sizes)
    placements = Placements(cost_model.cluster.sizes)
    everything = build_placement_graph(placements, ALL_GROUPS, len(cost_model.states))
    seeds = find_hpgo_shapes(cost_model.states, cost_model.cluster, cost_model.training)
    for size in sizes:
        scores.offer_all((shape, size) for shape in seeds)
    few = build_placement_graph(placements, FEW_GROUPS, len(cost_model.states))
    PeriodSearch(scores, everything, few, sizes).run()
    nothing = _offer_fitting(scores, everything, sizes[0]) if scores.best is None else None
    scores.offer_all(make_interleavings(scores, placements, sizes))
    improve_candidates(scores, placements, sizes)
    if everything.unit == 1 and count_shapes(len(cost_model.states), everything) <= small:
        whole = list(enumerate_shapes(len(cost_model.states), everything))
        for size in sizes:
            scores.offer_all(((shape, size) for shape in whole), ranked=False)
    if scores.best is None and nothing is not None:
        raise nothing
    return scores


def _offer_fitting(
    scores: CandidateScores, ways: PlacementGraph, micro_batch: int
) -> NoPlanError | None:
    """Offer the shape that needs the least memory; return the error if even that does not fit."""
    try:
        shape = find_fitting_shape(scores.cost_model, ways, micro_batch)
    except NoPlanError as error:
        return error
    scores.offer(shape, micro_batch)
    return None
