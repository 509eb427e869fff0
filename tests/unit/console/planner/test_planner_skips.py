"""Skip connections in plans: what goes past a stage, and the way that it takes."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine
from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.planning import plan
from spbench.planner.profile.graph import build_graph
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.profile.skips import find_skips
from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.stage_messages import choose_skip_route
from spbench.planner.search.stage_times import compute_passes
from spbench.planner.simulation.step import simulate
from spbench.planner.training import Training
from unit.console.planner.made_up import chain

SIX = replace(
    chain([1.0] * 6, [8e3, 4e3, 1e3, 1e3, 4e3, 8e3]), edges=(*pairwise(range(6)), (0, 5), (1, 4))
)
THREE = Shape((2, 4, 6), tuple(DeviceGroup((at,), (at + 1,)) for at in range(3)))


def place(latency=0.0, overhead=0.0, devices=3, rate=1e6, copies=None):
    link = Link("link", rate, latency, None, overhead, copies)
    return Cluster("row", (Machine("m", (DeviceKind("device"),) * devices, link),))


def costs(cluster, profile=SIX):
    return CostModel(find_linear_states(profile), cluster, Training(4, 1, 2.0))


def sends(cluster, profile=SIX):
    model = costs(cluster, profile)
    times = compute_passes(model, Candidate(THREE, 1, "1f1b"))
    return (
        choose_skip_route(model, THREE, 1),
        [each.send_s for each in times],
        [e.forward_s for e in times],
    )


def test_straight_a_stage_gets_what_it_reads():
    # Output 0 goes from stage 0 to 2; 1 is read by both of its cuts' next stages.
    assert sends(place()) == ("straight", pytest.approx([0.004, 0.013, 0.0]), [0.002] * 3)


def test_along_each_cut_is_crossed_by_all_that_is_alive():
    way, seconds, _ = sends(place(latency=0.1))
    assert way == "along"
    assert seconds == pytest.approx([0.1 + 0.012, 0.1 + 0.013, 0.0])


def test_a_message_more_keeps_two_devices_from_computing():
    way, _, forward = sends(place(overhead=1e-4))
    assert way == "straight"
    assert forward == pytest.approx([0.002 + 2e-4, 0.002 + 2e-4, 0.002 + 2e-4])


def test_copies_keep_the_devices_at_both_ends_from_computing():
    # Output 1 crosses the first cut, 3 the second one, and 0 goes straight past stage 1.
    _, _, forward = sends(place(copies=1e6))
    assert forward == pytest.approx([0.002 + 0.004 + 0.008, 0.002 + 0.004 + 0.005, 0.002 + 0.013])
    _, _, along = sends(place(copies=1e6, latency=0.1))
    assert along == pytest.approx([0.002 + 0.012, 0.002 + 0.012 + 0.013, 0.002 + 0.013])


def test_a_chain_has_no_skips():
    assert sends(place(), chain([1.0] * 6, [1e3] * 6))[0] is None
    found = plan(chain([1.0] * 6, [1e3] * 6), place(), 4, micro_batch_size=1)
    assert found.skips is None


def test_the_plan_tells_the_way_and_its_step_counts_it():
    heavy = tuple(replace(each, parameter_bytes=1e9) for each in SIX.layers)
    profile = replace(SIX, layers=heavy)
    straight = plan(profile, place(rate=1e8), 6, micro_batch_size=1)
    along = plan(profile, place(rate=1e8, latency=1e-3), 6, micro_batch_size=1)
    assert (straight.skips, along.skips) == ("straight", "along")
    assert simulate(straight).step_s == pytest.approx(straight.step_s)
    assert along.step_s > straight.step_s


@pytest.mark.parametrize("seed", range(20))
def test_what_goes_past_a_stage_is_what_crosses_both_its_cuts_unread(seed):
    random = Random(seed)
    count = random.randrange(1, 9)
    layers = [float(1 << at) for at in range(count)]
    past = [(a, b) for a in range(count) for b in range(a + 2, count) if random.random() < 0.3]
    profile = replace(chain([1.0] * count, layers), edges=(*pairwise(range(count)), *past))
    graph = build_graph(count, profile.edges)
    found = find_skips(profile, graph, [(1 << at + 1) - 1 for at in range(count)])
    for start in range(count):
        for end in range(start + 1, count + 1):
            wanted = {
                a
                for a, b in profile.edges
                if a < start
                and b >= end
                and not any((a, c) in profile.edges for c in range(start, end))
            }
            assert found.bytes_past(start, end) == sum(layers[a] for a in wanted)
