"""Tests of mode best against brute force, HPGO and hand calculations."""

from collections import defaultdict
from dataclasses import replace
from math import inf

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.cluster.machines import (
    Cluster,
    DeviceKind,
    Link,
    Machine,
    make_cluster_from_ends,
)
from spbench.planner.cluster.placement import DeviceGroup, Placements
from spbench.planner.cluster.placement_graph import build_placement_graph
from spbench.planner.errors import NoPlanError, PlannerError
from spbench.planner.planning import plan, plan_many
from spbench.planner.plans import Training
from spbench.planner.profile.antichains import find_antichain_states
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import BatchMeasurement, LayerProfile, Profile
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.search.best import find_best, search_best
from spbench.planner.search.candidates import Candidate, Shape, SizedShape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.periods import BoundedSearch
from spbench.planner.search.scoring import CandidateScores
from spbench.planner.search.shortest_paths import CostArrays, SearchGraph, ShortestPathDP
from spbench.planner.search.stage_times import compute_stages
from spbench.planner.simulation.step import simulate
from spbench_core.schedule.timetable import compute_timetable
from support.planner.brute_force import BruteForceSearch
from support.planner.sample_profiles import find_shared_file, make_chain

KIND = DeviceKind("device", 1000.0)


def cluster(sizes, kind=KIND, inner=1e5, outer=1e4, latency=0.0, collective=None):
    within = Link("within", inner, latency)
    between = Link("between", outer, 2 * latency, collective)
    machines = tuple(
        Machine(f"m{index}", (kind,) * size, within) for index, size in enumerate(sizes)
    )
    return Cluster("cluster", machines, between)


@st.composite
def problems(draw):
    """Draw up to 6 layers, up to 4 devices and a batch; often no plan fits the memory."""
    layers = draw(st.integers(1, 6))

    def draw_values(values):
        return draw(st.lists(st.sampled_from(values), min_size=layers, max_size=layers))

    profile = make_chain(
        draw_values([1.0, 2.0, 3.0, 10.0]),
        draw_values([0.0, 1.0, 20.0, 50.0]),
        draw_values(draw(st.sampled_from([[0.0, 1.0, 40.0], [10.0, 30.0, 50.0]]))),
    )
    pairs = [(a, b) for a in range(layers) for b in range(a + 2, layers)]
    skips = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3)) if pairs else []
    profile = replace(profile, edges=(*profile.edges, *skips))
    if draw(st.booleans()):
        shares = zip(
            profile.layers, draw_values([0.5, 0.75, 1.0]), draw_values([0.5, 1.0]), strict=True
        )
        rows = (
            replace(row, data_ms=data * row.backward_ms, weights_ms=later * row.backward_ms)
            for row, data, later in shares
        )
        profile = replace(profile, layers=tuple(rows))
    sizes = draw(st.sampled_from([(4,), (2, 2), (1, 1, 1, 1), (1, 3), (3, 1), (2, 1, 1), (1, 2)]))
    memory = draw(st.sampled_from([None, 1000.0, 200.0, 100.0, 60.0]))
    target_cluster = cluster(
        sizes,
        DeviceKind("device", memory),
        draw(st.sampled_from([1e4, 1e5])),
        draw(st.sampled_from([1e3, 1e4, 1e5])),
        draw(st.sampled_from([0.0, 0.002])),
        draw(st.sampled_from([None, 3e3])),
    )
    return find_linear_states(profile), target_cluster, draw(st.sampled_from([1, 2, 3, 4, 6, 8]))


def find_plan(states, target_cluster, training, choose=True):
    try:
        return search_best(states, target_cluster, training, choose)
    except NoPlanError:
        return None


@pytest.mark.slow
@settings(max_examples=25)
@given(problems())
def test_best_plan_matches_brute_force(problem):
    states, target_cluster, batch = problem
    best = find_plan(states, target_cluster, Training(batch, 1, 2.0))
    shortest = BruteForceSearch(states, target_cluster, batch, 2.0).find_best_step()
    assert (best.step_s if best else inf) == pytest.approx(shortest, rel=1e-9)
    if best is None:
        return
    simulated = simulate(best)
    assert simulated.step_s == pytest.approx(best.step_s, rel=1e-12)
    assert simulated.peak_bytes == tuple(stage.memory_bytes for stage in best.stages)
    memory = target_cluster.kinds[0].memory_bytes
    assert memory is None or max(simulated.peak_bytes) <= memory


@pytest.mark.slow
@settings(max_examples=12)
@given(problems(), st.integers(1, 3))
def test_requested_micro_batch_is_used(problem, micro_batch):
    states, target_cluster, batch = problem
    training = Training(batch * micro_batch, micro_batch, 2.0)
    best = find_plan(states, target_cluster, training, choose=False)
    shortest = BruteForceSearch(states, target_cluster, batch * micro_batch, 2.0).find_best_step(
        micro_batch
    )
    assert (best.step_s if best else inf) == pytest.approx(shortest, rel=1e-9)
    assert best is None or best.micro_batch_size == micro_batch


@pytest.mark.slow
@settings(max_examples=12)
@given(problems())
def test_search_for_large_problems_is_near_the_best(problem):
    states, target_cluster, batch = problem
    training = Training(batch, 1, 2.0)
    cost_model = CostModel(states, target_cluster, training)
    sizes = [size for size in range(1, batch + 1) if batch % size == 0]
    optimum = find_plan(states, target_cluster, training)
    if optimum is not None:
        assert (
            optimum.step_s * (1 - 1e-9)
            <= find_best(cost_model, sizes, max_enumerated_shapes=0).step_s
        )
        assert find_best(cost_model, sizes, max_enumerated_shapes=0).step_s <= optimum.step_s * 1.5


@pytest.mark.slow
@settings(max_examples=25)
@given(problems())
def test_bounded_search_finds_shapes_as_short_as_the_dp(problem):
    """The bounded search first assumes unlimited memory."""
    states, target_cluster, batch = problem
    cost_model = CostModel(states, target_cluster, Training(batch, 1, 2.0))
    graph = SearchGraph(build_placement_graph(Placements(target_cluster.sizes), 900, len(states)))
    ends = list(range(1, len(states) + 1))
    bounds = numpy.geomspace(0.001, 0.5, 8)
    search = BoundedSearch(cost_model, graph, 1, ends)
    shortest = defaultdict(lambda: inf)
    for bound, shape in search.search(bounds):
        shortest[bound] = min(shortest[bound], compute_pass_time(cost_model, shape))
    for deep in (False, True):
        reference = ShortestPathDP(
            CostArrays(cost_model, graph, 1, ends), bounds, deep, any_memory=False
        )
        for bound, shape in reference.find_shapes():
            assert shortest[bound] <= compute_pass_time(cost_model, shape) * (1 + 1e-9)


def compute_pass_time(cost_model, shape):
    """Return the seconds of a micro-batch through all stages, there and back."""
    passes = compute_stages(cost_model, Candidate(shape, 1, "1f1b"))
    return compute_timetable(passes, "1f1b", 1).end_s if passes else inf


def find_step(plan, states, target_cluster, training):
    """Return the shortest step of a plan's stages over all micro-batch sizes."""
    used = [0] * len(target_cluster.sizes)
    groups = []
    for stage in plan.stages:
        first = tuple(used)
        for device in stage.devices:
            used[target_cluster.find_machine(device)] += 1
        groups.append(DeviceGroup(first, tuple(used)))
    scores = CandidateScores(CostModel(states, target_cluster, training))
    shape = Shape(tuple(stage.end for stage in plan.stages), tuple(groups))
    batch = training.global_batch_size
    scores.offer_all(SizedShape(shape, size) for size in range(1, batch + 1) if batch % size == 0)
    return scores.step_s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "measured_at", "batch"),
    [
        ("dapple/vgg-19-pbs-32", 32, 2048),
        ("dapple/xlnet-36-pbs-1", 1, 128),
        ("dapple/bert-48-pbs-2", 2, 64),
        ("pipedream/resnet18", 128, 1024),
    ],
)
def test_best_is_never_worse_than_hpgo(name, measured_at, batch):
    profile = load_profile(find_shared_file(f"profiles/{name}.txt"), measured_at)
    target_cluster = make_cluster_from_ends([2, 4])
    hpgo = plan(profile, target_cluster, batch, mode="hpgo")
    hpgo_step = find_step(
        hpgo, find_antichain_states(profile), target_cluster, Training(batch, 1, 2.0)
    )
    assert plan(profile, target_cluster, batch).step_s <= hpgo_step * (1 + 1e-9)


def test_message_overhead_is_part_of_the_passes():
    """The middle of three stages has two messages per pass, the others one."""
    link = Link("slow to start", 1e9, overhead_s=0.001)
    target_cluster = Cluster("cluster", (Machine("m", (DeviceKind("device"),) * 3, link),))
    states = find_linear_states(make_chain([2.0] * 3, [8.0] * 3))
    groups = [DeviceGroup((index,), (index + 1,)) for index in range(3)]
    candidate = Candidate(Shape((1, 2, 3), tuple(groups)), 1, "1f1b")
    passes = compute_stages(CostModel(states, target_cluster, Training(4, 1, 2.0)), candidate)
    assert [stage.forward_s for stage in passes] == pytest.approx([0.003, 0.004, 0.003])
    assert [stage.backward_s for stage in passes] == pytest.approx([0.005, 0.006, 0.005])
    free_link = replace(link, overhead_s=0.0)
    free_cluster = Cluster("cluster", (Machine("m", (DeviceKind("device"),) * 3, free_link),))
    slow, fast = (
        plan(states.profile, used, 4, micro_batch_size=1) for used in (target_cluster, free_cluster)
    )
    assert slow.step_s > fast.step_s


def test_interleaves_if_nothing_else_fits():
    """Two consecutive layers do not fit on a device, alternate layers do."""
    profile = make_chain([1.0] * 4, [1.0] * 4, [300.0, 500.0, 300.0, 100.0])
    target_cluster = cluster((2,), DeviceKind("device", 1250.0), 1e9)
    best = plan(profile, target_cluster, 2)
    assert (best.schedule, best.rounds) == ("interleaved", 2)
    assert best.step_s == pytest.approx(
        BruteForceSearch(find_linear_states(profile), target_cluster, 2, 2.0).find_best_step()
    )


def test_baseline_speedups_use_the_same_single_device():
    best = plan(make_chain([3.0, 4.0], [1.0, 1.0], [10.0, 10.0]), make_cluster_from_ends([2]), 6)
    assert best.baselines
    for baseline in best.baselines:
        if baseline.step_s is not None:
            assert baseline.speedup == pytest.approx(best.single_s / baseline.step_s)


def test_one_device_runs_one_stage():
    best = plan(make_chain([3.0, 4.0]), cluster([1]), 6)
    assert best.step_s == pytest.approx(6 * 0.021)
    assert [(stage.start, stage.end, stage.devices) for stage in best.stages] == [(0, 2, (0,))]
    assert best.speedup == pytest.approx(1.0)
    assert [baseline.name for baseline in best.baselines][:1] == ["DP no overlap"]


def test_stage_recomputes_only_if_it_does_not_fit_otherwise():
    # The model keeps 180 bytes. Its halves keep 80, of two micro-batches in flight, and 100.
    profile = make_chain([1.0, 1.0, 1.0, 1.0], [30.0, 50.0, 50.0, 50.0])
    loose = plan(profile, cluster([2], inner=1e9), 4)
    tight = plan(profile, cluster([2], DeviceKind("small", 110.0), inner=1e9), 4)
    assert not any(stage.recompute for stage in loose.stages)
    assert [stage.recompute for stage in tight.stages] == [True, False]
    assert [stage.memory_bytes for stage in tight.stages] == pytest.approx([80, 100])
    for stage in tight.stages:
        ahead = stage.forward_s if stage.recompute else 0.0
        assert stage.backward_s == pytest.approx(2 * stage.forward_s + ahead)


def test_model_that_fits_nowhere_reports_the_missing_memory(messages):
    profile = make_chain([1.0, 1.0, 1.0], [10.0, 10.0, 10.0], [0.0, 5000.0, 0.0])
    with pytest.raises(NoPlanError) as error:
        plan(profile, cluster([2]), 4)
    # 10000 for parameters and gradients and 10 for its output, in 1000.
    messages.check(str(error.value))


def test_slower_stage_gets_more_devices():
    # Parameters are too dear to sum between machines, and the first layer has thrice the work.
    profile = make_chain([3.0, 1.0], [1.0, 1.0], [0.0, 1000.0])
    best = plan(profile, cluster([4], DeviceKind("device"), inner=1e4), 48)
    assert [stage.device_count for stage in best.stages] == [3, 1]


def test_all_reduce_of_one_stage_overlaps_the_backward_pass():
    profile = make_chain([1.0] * 4, parameters=[10.0] * 4)
    best = plan(profile, cluster([2], DeviceKind("device"), inner=1e4), 2, micro_batch_size=2)
    (stage,) = best.stages
    assert stage.device_count == 2
    # 1 ms per layer, ready every 2 ms: only the all-reduce of the first layer is exposed.
    assert stage.all_reduce_s == pytest.approx(0.004)
    assert stage.overlapped_s == pytest.approx(0.003)
    assert best.step_s == pytest.approx(0.013)


def test_mixed_devices_share_samples_by_speed():
    fast = DeviceKind("fast", None, 2.0)
    slow = DeviceKind("slow", 1000.0)
    machine = Machine("m", (fast, slow), Link("l", 1e9))
    best = plan(make_chain([1.0]), Cluster("mixed", (machine,)), 6, micro_batch_size=6)
    assert best.step_s == pytest.approx(0.006)  # four samples at twice the speed, and two
    baselines = {baseline.name: baseline for baseline in best.baselines}
    assert baselines["DP no overlap"].step_s == pytest.approx(0.006)
    assert baselines["straight pipeline"].reason.endswith("devices and links of one kind")


def test_measured_batch_sizes_are_used():
    # A pass takes 10 ms for one sample and 11 for two: two at once are much cheaper.
    row = LayerProfile("a", "a", 4.0, 6.0, 1.0, 0.0)
    row_of_two = LayerProfile("a", "a", 4.4, 6.6, 2.0, 0.0)
    profile = Profile("fixed-cost", 1, (row,), (), (BatchMeasurement(2, (row_of_two,)),))
    best = plan(profile, cluster([1]), 4)
    assert best.micro_batch_size == 4
    assert best.step_s == pytest.approx(0.013)  # extrapolated: 1 ms per additional sample
    assert best.speedup == pytest.approx(1.0)
    assert plan(profile, cluster([1]), 4, micro_batch_size=1).step_s == pytest.approx(0.040)


def test_known_activation_peak_replaces_the_estimate():
    profile = make_chain([1.0, 1.0], [10.0, 30.0])
    best = plan(profile, cluster([1]), 1, peak_activation_bytes=400.0)
    assert best.stages[0].memory_bytes == pytest.approx(400.0)
    with pytest.raises(NoPlanError):
        plan(profile, cluster([1]), 1, peak_activation_bytes=4000.0)


@pytest.mark.slow
def test_several_processes_give_the_same_plans():
    profile = make_chain([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    target_cluster = cluster([2])
    plans = plan_many(profile, target_cluster, [1, 2, 0])
    assert plan_many(profile, target_cluster, [1, 2, 0], jobs=2)[:2] == plans[:2]
    assert [planned.global_batch_size for planned in plans[:2]] == [1, 2]
    assert isinstance(plans[2], PlannerError)
    with pytest.raises(PlannerError, match="0 jobs"):
        plan_many(profile, target_cluster, [1], jobs=0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"micro_batch_size": 3}, "do not divide"),
        ({"micro_batch_size": 0}, "above 0"),
        ({"mode": "fast"}, "neither best nor hpgo"),
        ({"optimizer_memory_scaling": 0.5}, "must be from 1 to 10000"),
    ],
)
def test_rejects_invalid_options(options, text):
    with pytest.raises(PlannerError, match=text):
        plan(make_chain([1.0]), cluster([1]), 8, **options)
