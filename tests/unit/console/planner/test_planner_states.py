"""Tests of the states of a profile: antichains, the chain of cuts, and cycles."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.errors import PlannerError
from spbench.planner.profile.antichains import find_antichain_states
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.graph import build_graph, find_cycle, iterate_bits, sort_topologically
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.profile.states import drop_unplanned_layers
from support.paths import SHARED_DATA
from support.planner.sample_profiles import find_shared_file, make_chain, make_diamond, make_layer

BRANCHES = Profile(
    "wide", 1, tuple(make_layer(str(n)) for n in range(16)), tuple((0, n) for n in range(1, 16))
)


def read_state_counts():
    """Return the files of the shared profiles with the state counts from their README."""
    readme = SHARED_DATA / "profiles" / "README.md"
    text = readme.read_text() if readme.exists() else ""
    rows = re.findall(r"^\| (\S+\.txt) \| \d+ \| \d+ \| \w+ \| (\d+) \|", text, re.MULTILINE)
    return [(name, int(count)) for name, count in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), read_state_counts())
def test_state_count_matches_hpgo(name, count):
    assert (
        len(find_antichain_states(load_profile(find_shared_file(f"profiles/{name}"), 1))) == count
    )


def is_chain(states):
    """Return whether each state can follow all states before it."""
    return all(mask == (1 << index) - 1 for index, mask in enumerate(states.ancestors))


def test_chain_has_a_state_per_layer():
    states = find_antichain_states(make_chain([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]))
    assert is_chain(states)
    assert states.names == ("n0", "n1", "n2")
    assert states.forward_s == pytest.approx((0.001, 0.003, 0.006))
    assert states.backward_s == pytest.approx((0.002, 0.006, 0.012))
    assert states.crossing_bytes == (4.0, 5.0, 6.0)
    assert states.activation_bytes == (4.0, 9.0, 15.0)
    assert states.parameter_bytes == (7.0, 15.0, 24.0)
    assert states.list_layers(1, 3) == [1, 2]
    assert states.sum_range(states.parameter_bytes, 1, 2) == 8.0


def test_skip_edges_add_to_the_crossing_bytes():
    skip = Profile(
        "skip", 1, make_chain([1.0] * 3, [1.0, 2.0, 4.0]).layers, ((0, 1), (1, 2), (0, 2))
    )
    for states in (find_antichain_states(skip), find_linear_states(skip)):
        assert states.crossing_bytes[:2] == (1.0, 3.0)


def test_diamond_has_five_downsets():
    states = find_antichain_states(make_diamond())
    assert sorted(states.downsets) == [0b0001, 0b0011, 0b0101, 0b0111, 0b1111]
    crossing = dict(zip(states.downsets, states.crossing_bytes, strict=True))
    # For both branches, HPGO also counts the layer before them; a cut sends only the branches.
    assert crossing[0b0111] == 1.0 + 2.0 + 4.0
    assert crossing[0b0011] == 1.0 + 2.0
    assert not is_chain(states)


def test_ancestors_are_smaller_downsets():
    states = find_antichain_states(make_diamond())
    for index, mask in enumerate(states.ancestors):
        for ancestor in iterate_bits(mask):
            assert states.downsets[ancestor] & states.downsets[index] == states.downsets[ancestor]
            assert ancestor < index


def test_drops_inputs_and_unread_items():
    layers = (
        make_layer("in", description="Input0"),
        make_layer("a"),
        make_layer("b", description="__getitem__(1)"),
    )
    planned = drop_unplanned_layers(Profile("p", 1, layers, ((0, 1), (1, 2))))
    assert [row.name for row in planned.layers] == ["a"]


def test_rejects_a_profile_of_only_inputs():
    with pytest.raises(PlannerError, match="no layers"):
        drop_unplanned_layers(Profile("p", 1, (make_layer("in", description="Input"),), ()))


@pytest.mark.slow
def test_rejects_too_many_states(messages):
    with messages.raises(PlannerError):
        find_antichain_states(BRANCHES)
    assert len(find_linear_states(BRANCHES)) <= 16


@pytest.mark.slow
def test_states_are_reproducible():
    path = find_shared_file("profiles/dapple/gnmt-16-pbs-64.txt")
    assert find_antichain_states(load_profile(path, 64)) == find_antichain_states(
        load_profile(path, 64)
    )


# The chain of cuts


def test_chain_prefers_cuts_with_few_bytes():
    # Through the small branch first, 4 bytes wait for the end; through the wide one first, 400.
    layers = (
        make_layer("a", activation=1.0),
        make_layer("wide", activation=400.0),
        make_layer("thin"),
    )
    profile = Profile("p", 1, (*layers, make_layer("d")), ((0, 1), (0, 2), (1, 3), (2, 3)))
    states = find_linear_states(profile)
    assert states.names == ("a", "thin", "wide", "d")
    assert states.crossing_bytes == (1.0, 1.0, 400.0, 0.0)


def test_drops_cuts_that_are_free_to_move():
    layers = (make_layer("a", activation=9.0), make_layer("drop", 0.0, 0.0, 3.0), make_layer("b"))
    states = find_linear_states(Profile("p", 1, layers, ((0, 1), (1, 2))))
    assert states.names == ("drop", "b")
    assert states.list_layers(0, 1) == [0, 1]


def test_gnmt_has_at_most_200_states():
    profile = load_profile(find_shared_file("profiles/dapple/gnmt-16-pbs-64.txt"), 64)
    assert len(find_linear_states(profile)) <= 200


@pytest.mark.parametrize("limit", [2, 5, 11])
def test_number_of_states_is_limited(limit):
    states = find_linear_states(
        make_chain([1.0] * 40, [float(index % 7) for index in range(40)]), limit
    )
    assert len(states) <= limit
    assert states.downsets[-1] == (1 << 40) - 1


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 7))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    sizes = [float(draw(st.integers(0, 9))) for _ in range(count)]
    layers = tuple(make_layer(str(index), activation=size) for index, size in enumerate(sizes))
    return Profile("p", 1, layers, tuple(edges))


@settings(max_examples=80)
@given(graphs())
def test_chain_is_a_topological_order_of_all_layers(profile):
    states = find_linear_states(profile)
    graph = build_graph(len(profile.layers), profile.edges)
    assert is_chain(states)
    assert states.downsets[-1] == (1 << len(profile.layers)) - 1
    for mask in states.downsets:
        assert all(not graph.ancestor_masks[node] & ~mask for node in iterate_bits(mask))


@settings(max_examples=80)
@given(graphs())
def test_states_are_distinct_downsets(profile):
    graph = build_graph(len(profile.layers), profile.edges)
    connected = {0}
    for _ in profile.layers:
        connected |= {b for a, b in profile.edges if a in connected}
        connected |= {a for a, b in profile.edges if b in connected}
    if len(connected) < len(profile.layers):
        with pytest.raises(PlannerError, match="not joined to its first one, 0"):
            find_antichain_states(profile)
        return
    states = find_antichain_states(profile)
    assert len(set(states.downsets)) == len(states)
    for mask in states.downsets:
        assert all(not graph.ancestor_masks[node] & ~mask for node in iterate_bits(mask))


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_finds_a_cycle_if_no_topological_order_exists(edges):
    cycle = find_cycle(6, edges)
    assert bool(cycle) == (len(sort_topologically(6, edges)) < 6)
    for index, node in enumerate(cycle):
        assert (cycle[index - 1], node) in edges
