"""Tests of skip connections in plans: bytes that pass a stage, and their route."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine
from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.planning import plan
from spbench.planner.plans import Training
from spbench.planner.profile.graph import build_graph
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.profile.skips import find_skips
from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.stage_messages import choose_skip_route
from spbench.planner.search.stage_times import compute_stages
from spbench.planner.simulation.step import simulate
from support.planner.sample_profiles import make_chain

SIX = replace(
    make_chain([1.0] * 6, [8e3, 4e3, 1e3, 1e3, 4e3, 8e3]),
    edges=(*pairwise(range(6)), (0, 5), (1, 4)),
)
THREE = Shape((2, 4, 6), tuple(DeviceGroup((n,), (n + 1,)) for n in range(3)))


def build_cluster(latency=0.0, overhead=0.0, devices=3, rate=1e6, copies=None):
    link = Link("link", rate, latency, None, overhead, copies)
    return Cluster("row", (Machine("m", (DeviceKind("device"),) * devices, link),))


def build_cost_model(cluster, profile=SIX):
    return CostModel(find_linear_states(profile), cluster, Training(4, 1, 2.0))


def compute_sends(cluster, profile=SIX):
    model = build_cost_model(cluster, profile)
    times = compute_stages(model, Candidate(THREE, 1, "1f1b"))
    return (
        choose_skip_route(model, THREE, 1),
        [stage.send_s for stage in times],
        [stage.forward_s for stage in times],
    )


def test_straight_route_sends_only_outputs_that_are_read():
    # Output 0 goes from stage 0 to 2; the stages after both cuts read output 1.
    assert compute_sends(build_cluster()) == (
        "straight",
        pytest.approx([0.004, 0.013, 0.0]),
        [0.002] * 3,
    )


def test_along_route_sends_all_live_outputs_over_each_cut():
    route, seconds, _ = compute_sends(build_cluster(latency=0.1))
    assert route == "along"
    assert seconds == pytest.approx([0.1 + 0.012, 0.1 + 0.013, 0.0])


def test_message_overhead_counts_on_both_devices():
    route, _, forward = compute_sends(build_cluster(overhead=1e-4))
    assert route == "straight"
    assert forward == pytest.approx([0.002 + 2e-4, 0.002 + 2e-4, 0.002 + 2e-4])


def test_copies_count_on_both_devices():
    # Output 1 crosses the first cut, 3 the second one, and 0 goes straight past stage 1.
    _, _, forward = compute_sends(build_cluster(copies=1e6))
    assert forward == pytest.approx([0.002 + 0.004 + 0.008, 0.002 + 0.004 + 0.005, 0.002 + 0.013])
    _, _, along = compute_sends(build_cluster(copies=1e6, latency=0.1))
    assert along == pytest.approx([0.002 + 0.012, 0.002 + 0.012 + 0.013, 0.002 + 0.013])


def test_chain_has_no_skips():
    assert compute_sends(build_cluster(), make_chain([1.0] * 6, [1e3] * 6))[0] is None
    planned = plan(make_chain([1.0] * 6, [1e3] * 6), build_cluster(), 4, micro_batch_size=1)
    assert planned.skips is None


def test_plan_has_the_route_and_counts_it_in_the_step():
    heavy = tuple(replace(row, parameter_bytes=1e9) for row in SIX.layers)
    profile = replace(SIX, layers=heavy)
    straight = plan(profile, build_cluster(rate=1e8), 6, micro_batch_size=1)
    along = plan(profile, build_cluster(rate=1e8, latency=1e-3), 6, micro_batch_size=1)
    assert (straight.skips, along.skips) == ("straight", "along")
    assert simulate(straight).step_s == pytest.approx(straight.step_s)
    assert along.step_s > straight.step_s


@pytest.mark.parametrize("seed", range(20))
def test_bytes_past_a_stage_are_those_it_does_not_read(seed):
    random = Random(seed)
    count = random.randrange(1, 9)
    layers = [float(1 << index) for index in range(count)]
    skip_edges = [
        (a, b) for a in range(count) for b in range(a + 2, count) if random.random() < 0.3
    ]
    profile = replace(
        make_chain([1.0] * count, layers), edges=(*pairwise(range(count)), *skip_edges)
    )
    graph = build_graph(count, profile.edges)
    skips = find_skips(profile, graph, [(1 << index + 1) - 1 for index in range(count)])
    for start in range(count):
        for end in range(start + 1, count + 1):
            expected = {
                a
                for a, b in profile.edges
                if a < start
                and b >= end
                and not any((a, c) in profile.edges for c in range(start, end))
            }
            assert skips.get_bytes_past(start, end) == sum(layers[a] for a in expected)
