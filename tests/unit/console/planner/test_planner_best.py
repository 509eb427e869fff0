from collections import defaultdict
from dataclasses import replace
from math import inf

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine, cluster_from_ends
from spbench.planner.cluster.placement import DeviceGroup, Placements
from spbench.planner.cluster.placement_graph import build_placement_graph
from spbench.planner.errors import NoPlanError, PlannerError
from spbench.planner.planning import plan, plan_many
from spbench.planner.profile.antichains import find_antichain_states
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import BatchMeasurement, LayerProfile, Profile
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.search.best import find_best, search_best
from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.periods import BoundedSearch
from spbench.planner.search.scoring import CandidateScores
from spbench.planner.search.shortest_paths import CostArrays, SearchGraph, ShortestPathDP
from spbench.planner.search.stage_times import compute_passes
from spbench.planner.simulation.step import simulate
from spbench.planner.training import Training
from spbench_core.schedule.timetable import compute_timetable
from unit.console.planner.brute import Brute
from unit.console.planner.made_up import chain, shared

KIND = DeviceKind("device", 1000.0)


def cluster(sizes, kind=KIND, inner=1e5, outer=1e4, latency=0.0, collective=None):
    within = Link("within", inner, latency)
    between = Link("between", outer, 2 * latency, collective)
    machines = tuple(Machine(f"m{at}", (kind,) * size, within) for at, size in enumerate(sizes))
    return Cluster("cluster", machines, between)


@st.composite
def problems(draw):
    """States of up to 6 layers, up to 4 devices, a batch; often there is no memory for any plan."""
    layers = draw(st.integers(1, 6))

    def each(values):
        return draw(st.lists(st.sampled_from(values), min_size=layers, max_size=layers))

    profile = chain(
        each([1.0, 2.0, 3.0, 10.0]),
        each([0.0, 1.0, 20.0, 50.0]),
        each(draw(st.sampled_from([[0.0, 1.0, 40.0], [10.0, 30.0, 50.0]]))),
    )
    past = [(a, b) for a in range(layers) for b in range(a + 2, layers)]
    skips = draw(st.lists(st.sampled_from(past), unique=True, max_size=3)) if past else []
    profile = replace(profile, edges=(*profile.edges, *skips))
    if draw(st.booleans()):
        apart = zip(profile.layers, each([0.5, 0.75, 1.0]), each([0.5, 1.0]), strict=True)
        rows = (
            replace(row, data_ms=data * row.backward_ms, weights_ms=later * row.backward_ms)
            for row, data, later in apart
        )
        profile = replace(profile, layers=tuple(rows))
    sizes = draw(st.sampled_from([(4,), (2, 2), (1, 1, 1, 1), (1, 3), (3, 1), (2, 1, 1), (1, 2)]))
    memory = draw(st.sampled_from([None, 1000.0, 200.0, 100.0, 60.0]))
    place = cluster(
        sizes,
        DeviceKind("device", memory),
        draw(st.sampled_from([1e4, 1e5])),
        draw(st.sampled_from([1e3, 1e4, 1e5])),
        draw(st.sampled_from([0.0, 0.002])),
        draw(st.sampled_from([None, 3e3])),
    )
    return find_linear_states(profile), place, draw(st.sampled_from([1, 2, 3, 4, 6, 8]))


def found(states, place, training, choose=True):
    try:
        return search_best(states, place, training, choose)
    except NoPlanError:
        return None


@pytest.mark.slow
@settings(max_examples=25)
@given(problems())
def test_the_best_plan_is_that_of_brute_force(problem):
    states, place, batch = problem
    best = found(states, place, Training(batch, 1, 2.0))
    least = Brute(states, place, batch, 2.0).best()
    assert (best.step_s if best else inf) == pytest.approx(least, rel=1e-9)
    if best is None:
        return
    again = simulate(best)
    assert again.step_s == pytest.approx(best.step_s, rel=1e-12)
    assert again.peak_bytes == tuple(each.memory_bytes for each in best.stages)
    memory = place.kinds[0].memory_bytes
    assert memory is None or max(again.peak_bytes) <= memory


@pytest.mark.slow
@settings(max_examples=12)
@given(problems(), st.integers(1, 3))
def test_a_given_micro_batch_is_kept(problem, micro_batch):
    states, place, batch = problem
    training = Training(batch * micro_batch, micro_batch, 2.0)
    best = found(states, place, training, choose=False)
    least = Brute(states, place, batch * micro_batch, 2.0).best(micro_batch)
    assert (best.step_s if best else inf) == pytest.approx(least, rel=1e-9)
    assert best is None or best.micro_batch_size == micro_batch


@pytest.mark.slow
@settings(max_examples=12)
@given(problems())
def test_the_search_for_large_problems_is_never_below_and_rarely_above_the_best(problem):
    states, place, batch = problem
    training = Training(batch, 1, 2.0)
    cost_model = CostModel(states, place, training)
    sizes = [size for size in range(1, batch + 1) if batch % size == 0]
    least = found(states, place, training)
    if least is not None:
        assert least.step_s * (1 - 1e-9) <= find_best(cost_model, sizes, small=0).step_s
        assert find_best(cost_model, sizes, small=0).step_s <= least.step_s * 1.5


@pytest.mark.slow
@settings(max_examples=25)
@given(problems())
def test_the_search_by_bounds_finds_a_way_as_short_under_any_schedule_and_memory(problem):
    """Also where it first looks as if there were memory for anything."""
    states, place, batch = problem
    cost_model = CostModel(states, place, Training(batch, 1, 2.0))
    roads = SearchGraph(build_placement_graph(Placements(place.sizes), 900, len(states)))
    ends = list(range(1, len(states) + 1))
    bounds = numpy.geomspace(0.001, 0.5, 8)
    search = BoundedSearch(cost_model, roads, 1, ends)
    ways = defaultdict(lambda: inf)
    for bound, shape in search.search(bounds):
        ways[bound] = min(ways[bound], way(cost_model, shape))
    for deep in (False, True):
        known = ShortestPathDP(
            CostArrays(cost_model, roads, 1, ends), bounds, deep, any_memory=False
        )
        for bound, shape in known.find_shapes():
            assert ways[bound] <= way(cost_model, shape) * (1 + 1e-9)


def way(cost_model, shape):
    """Seconds of one micro-batch through all stages and back, and of all-reduces that follow."""
    known = compute_passes(cost_model, Candidate(shape, 1, "1f1b"))
    return compute_timetable(known, "1f1b", 1).end_s if known else inf


def step_of(plan, states, place, training):
    """The least step of a plan's stages at any micro-batch size, as mode best counts it."""
    used = [0] * len(place.sizes)
    groups = []
    for stage in plan.stages:
        first = tuple(used)
        for device in stage.devices:
            used[place.find_machine(device)] += 1
        groups.append(DeviceGroup(first, tuple(used)))
    scores = CandidateScores(CostModel(states, place, training))
    shape = Shape(tuple(stage.end for stage in plan.stages), tuple(groups))
    batch = training.global_batch_size
    scores.offer_all((shape, size) for size in range(1, batch + 1) if batch % size == 0)
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
def test_it_is_never_worse_than_hpgo(name, measured_at, batch):
    profile = load_profile(shared(f"profiles/{name}.txt"), measured_at)
    place = cluster_from_ends([2, 4])
    hpgo = plan(profile, place, batch, mode="hpgo")
    known = step_of(hpgo, find_antichain_states(profile), place, Training(batch, 1, 2.0))
    assert plan(profile, place, batch).step_s <= known * (1 + 1e-9)


def test_what_messages_take_of_the_devices_is_part_of_the_passes():
    """Of three stages in a row the middle one has two messages a pass, the others one."""
    link = Link("slow to start", 1e9, overhead_s=0.001)
    place = Cluster("cluster", (Machine("m", (DeviceKind("device"),) * 3, link),))
    states = find_linear_states(chain([2.0] * 3, [8.0] * 3))
    groups = [DeviceGroup((at,), (at + 1,)) for at in range(3)]
    candidate = Candidate(Shape((1, 2, 3), tuple(groups)), 1, "1f1b")
    found = compute_passes(CostModel(states, place, Training(4, 1, 2.0)), candidate)
    assert [each.forward_s for each in found] == pytest.approx([0.003, 0.004, 0.003])
    assert [each.backward_s for each in found] == pytest.approx([0.005, 0.006, 0.005])
    free = replace(link, overhead_s=0.0)
    without = Cluster("cluster", (Machine("m", (DeviceKind("device"),) * 3, free),))
    one, other = (plan(states.profile, each, 4, micro_batch_size=1) for each in (place, without))
    assert one.step_s > other.step_s


def test_where_only_interleaved_stages_fit_they_are_found():
    """Halves in a row are too large for either device, every other layer is not."""
    profile = chain([1.0] * 4, [1.0] * 4, [300.0, 500.0, 300.0, 100.0])
    place = cluster((2,), DeviceKind("device", 1250.0), 1e9)
    best = plan(profile, place, 2)
    assert (best.schedule, best.rounds) == ("interleaved", 2)
    assert best.step_s == pytest.approx(Brute(find_linear_states(profile), place, 2, 2.0).best())


def test_other_ways_are_beside_the_same_single_device():
    best = plan(chain([3.0, 4.0], [1.0, 1.0], [10.0, 10.0]), cluster_from_ends([2]), 6)
    assert best.baselines
    for each in best.baselines:
        if each.step_s is not None:
            assert each.speedup == pytest.approx(best.single_s / each.step_s)


def test_one_device_runs_one_stage():
    best = plan(chain([3.0, 4.0]), cluster([1]), 6)
    assert best.step_s == pytest.approx(6 * 0.021)
    assert [(each.start, each.end, each.devices) for each in best.stages] == [(0, 2, (0,))]
    assert best.speedup == pytest.approx(1.0)
    assert [each.name for each in best.baselines][:1] == ["DP no overlap"]


def test_a_stage_recomputes_where_it_would_not_fit_otherwise():
    # The model keeps 180 bytes. Its halves keep 80, of two micro-batches in flight, and 100.
    profile = chain([1.0, 1.0, 1.0, 1.0], [30.0, 50.0, 50.0, 50.0])
    loose = plan(profile, cluster([2], inner=1e9), 4)
    tight = plan(profile, cluster([2], DeviceKind("small", 110.0), inner=1e9), 4)
    assert not any(each.recompute for each in loose.stages)
    assert [each.recompute for each in tight.stages] == [True, False]
    assert [each.memory_bytes for each in tight.stages] == pytest.approx([80, 100])
    for each in tight.stages:
        ahead = each.forward_s if each.recompute else 0.0
        assert each.backward_s == pytest.approx(2 * each.forward_s + ahead)


def test_a_model_that_fits_nowhere_says_what_lacks():
    profile = chain([1.0, 1.0, 1.0], [10.0, 10.0, 10.0], [0.0, 5000.0, 0.0])
    with pytest.raises(NoPlanError) as error:
        plan(profile, cluster([2]), 4)
    # 10000 for parameters and gradients and 10 for its output, in 1000.
    assert str(error.value) == (
        "no plan of made-up fits the memory of cluster: in the one that comes nearest, with"
        " micro-batches of 1, stage 1 of 2 (n1 to n2, on 1 device) lacks 9020 bytes on a device"
    )


def test_unequal_stages_get_unequal_shares():
    # Parameters are too dear to sum between machines, and the first layer has thrice the work.
    profile = chain([3.0, 1.0], [1.0, 1.0], [0.0, 1000.0])
    best = plan(profile, cluster([4], DeviceKind("device"), inner=1e4), 48)
    assert [each.replicas for each in best.stages] == [3, 1]


def test_the_all_reduce_of_one_stage_hides_behind_the_backward_pass():
    profile = chain([1.0] * 4, parameters=[10.0] * 4)
    best = plan(profile, cluster([2], DeviceKind("device"), inner=1e4), 2, micro_batch_size=2)
    (only,) = best.stages
    assert only.replicas == 2
    # 1 ms for each layer, ready every 2 ms: what is left is the first layer's.
    assert only.all_reduce_s == pytest.approx(0.004)
    assert only.overlapped_s == pytest.approx(0.003)
    assert best.step_s == pytest.approx(0.013)


def test_mixed_devices_share_by_their_speed():
    fast = DeviceKind("fast", None, 2.0)
    slow = DeviceKind("slow", 1000.0)
    machine = Machine("m", (fast, slow), Link("l", 1e9))
    best = plan(chain([1.0]), Cluster("mixed", (machine,)), 6, micro_batch_size=6)
    assert best.step_s == pytest.approx(0.006)  # four samples at twice the speed, and two
    ways = {each.name: each for each in best.baselines}
    assert ways["DP no overlap"].step_s == pytest.approx(0.006)
    assert ways["straight pipeline"].reason.endswith("devices and links of one kind")


def test_measured_batch_sizes_count_as_they_were_measured():
    # A pass takes 10 ms for one sample and 11 for two: two at once are much cheaper.
    one = LayerProfile("a", "a", 4.0, 6.0, 1.0, 0.0)
    two = LayerProfile("a", "a", 4.4, 6.6, 2.0, 0.0)
    profile = Profile("fixed-cost", 1, (one,), (), (BatchMeasurement(2, (two,)),))
    best = plan(profile, cluster([1]), 4)
    assert best.micro_batch_size == 4
    assert best.step_s == pytest.approx(0.013)  # the line goes on: 1 ms for each sample more
    assert best.speedup == pytest.approx(1.0)
    assert plan(profile, cluster([1]), 4, micro_batch_size=1).step_s == pytest.approx(0.040)


def test_a_known_peak_stands_for_what_is_kept():
    profile = chain([1.0, 1.0], [10.0, 30.0])
    best = plan(profile, cluster([1]), 1, peak_activation_bytes=400.0)
    assert best.stages[0].memory_bytes == pytest.approx(400.0)
    with pytest.raises(NoPlanError):
        plan(profile, cluster([1]), 1, peak_activation_bytes=4000.0)


@pytest.mark.slow
def test_several_processes_plan_as_one():
    profile = chain([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    place = cluster([2])
    alone = plan_many(profile, place, [1, 2, 0])
    assert plan_many(profile, place, [1, 2, 0], jobs=2)[:2] == alone[:2]
    assert [each.global_batch_size for each in alone[:2]] == [1, 2]
    assert isinstance(alone[2], PlannerError)
    with pytest.raises(PlannerError, match="0 jobs"):
        plan_many(profile, place, [1], jobs=0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"micro_batch_size": 3}, "do not divide"),
        ({"micro_batch_size": 0}, "above 0"),
        ({"mode": "fast"}, "neither best nor hpgo"),
        ({"optimizer_memory_scaling": 0.5}, "must be from 1 to 10000"),
    ],
)
def test_wrong_numbers_are_told(options, text):
    with pytest.raises(PlannerError, match=text):
        plan(chain([1.0]), cluster([1]), 8, **options)
