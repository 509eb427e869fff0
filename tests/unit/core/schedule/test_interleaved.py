"""Interleaved pipelines: coordinates, peers and task orders of ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import ModelLayout, RankCoordinates, Stage, build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.schedule.list_scheduling import MAX_PENDING_SENDS
from spbench_core.schedule.orders import (
    Task,
    compute_ideal_bubble,
    count_max_in_flight,
    list_interleaved_tasks,
)
from spbench_core.schedule.step import list_step_orders
from spbench_core.schedule.timeline import DeadlockError, simulate_orders

STAGES = st.integers(2, 5)
ROUNDS = st.integers(2, 4)
GROUPS = st.integers(1, 4)
COST = st.integers(1, 4).map(float)


@st.composite
def layouts(draw):
    members = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    rounds = draw(ROUNDS)
    replicas = draw(st.integers(1, 2))
    stages = len(members) * rounds
    return build_layout(stages, members=members * rounds, replicas=replicas, rounds=rounds)


def build_pipeline(stages, rounds):
    return build_layout(stages * rounds, rounds=rounds)


def make_orders(layout, parts, *, forward_only=False):
    batches = split_batch(parts, parts)
    return list_step_orders(layout, batches, "interleaved", forward_only=forward_only)


def format_order(order):
    return " ".join(f"{task.kind[0]}{task.stage}.{task.micro_batch}" for task in order)


# Coordinates and groups


def test_all_rounds_use_the_same_ranks():
    layout = build_layout(4, members=[2, 1, 2, 1], replicas=2, rounds=2)
    assert (layout.stages_per_round, layout.ranks_per_replica, layout.rank_count) == (2, 3, 6)
    assert layout.list_coordinates(1) == (RankCoordinates(0, 0, 0, 1), RankCoordinates(0, 2, 0, 1))
    assert layout.list_coordinates(5) == (RankCoordinates(1, 1, 0, 0), RankCoordinates(1, 3, 0, 0))
    assert layout.locate_rank(5, round_index=1) == RankCoordinates(1, 3, 0, 0)
    assert layout.list_stage_ranks(2, replica=1) == layout.list_stage_ranks(0, replica=1) == (3, 4)
    assert [layout.find_round(stage) for stage in range(4)] == [0, 0, 1, 1]


def test_the_last_stage_of_a_round_precedes_the_next_round():
    layout = build_layout(4, members=[2, 1, 2, 1], rounds=2)
    assert layout.list_peer_ranks(layout.locate_rank(0), -1) == ()
    assert layout.list_peer_ranks(layout.locate_rank(2), 2) == (0, 1)
    assert layout.list_peer_ranks(layout.locate_rank(1, round_index=1), 1) == (2,)
    assert layout.list_peer_ranks(layout.locate_rank(2, round_index=1), 4) == ()
    layout = build_layout(6, members=2, rounds=3)
    assert layout.list_peer_ranks(layout.locate_rank(2), 2) == (0,)


@given(layouts())
def test_ranks_and_coordinates_map_one_to_one_per_round(layout):
    all_coordinates = [
        coordinates
        for rank in range(layout.rank_count)
        for coordinates in layout.list_coordinates(rank)
    ]
    assert len(set(all_coordinates)) == len(all_coordinates) == layout.rank_count * layout.rounds
    for rank in range(layout.rank_count):
        for round_index, coordinates in enumerate(layout.list_coordinates(rank)):
            assert layout.find_round(coordinates.stage) == round_index
            assert (
                layout.list_stage_ranks(coordinates.stage, coordinates.replica)[coordinates.member]
                == rank
            )


@given(layouts())
def test_senders_and_receivers_agree(layout):
    for rank in range(layout.rank_count):
        for sender in layout.list_coordinates(rank):
            next_stage = sender.stage + 1
            receiver_ranks = layout.list_peer_ranks(sender, next_stage)
            assert bool(layout.list_peer_ranks(sender, sender.stage - 1)) == (sender.stage > 0)
            assert bool(receiver_ranks) == (sender.stage < len(layout.stages) - 1)
            for peer in receiver_ranks:
                receiver = layout.locate_rank(peer, round_index=layout.find_round(next_stage))
                assert receiver.stage == next_stage
                assert rank in layout.list_peer_ranks(receiver, sender.stage)


def test_rejects_invalid_rounds(messages):
    with messages.raises(ValueError):
        build_layout(4, mirrored=True, rounds=2)
    with messages.raises(ValueError):
        build_layout(5, rounds=2)
    with messages.raises(ValueError):
        build_layout(2, rounds=2)
    for stages in ([2, 1, 1, 2], [1, 1, 2, 2]):
        with messages.raises(ValueError):
            build_layout(4, members=stages, rounds=2)
    with messages.raises(ValueError):
        build_layout(4, [Grid(1, 2)], rounds=2)
    with pytest.raises(ValueError, match="one round"):
        ModelLayout((Stage(), Stage()), rounds=0)
    with messages.raises(ValueError):
        build_layout(4, rounds=2).locate_rank(0, round_index=2)


# Task orders


def test_orders_of_two_ranks_match_a_derivation_by_hand():
    first, last = make_orders(build_pipeline(2, 2), 4)
    assert format_order(first) == (
        "f0.0 f0.1 f2.0 f2.1 f0.2 b2.0 f0.3 b2.1 f2.2 b0.0 f2.3 b0.1 b2.2 b2.3 b0.2 b0.3"
    )
    assert format_order(last) == (
        "f1.0 f1.1 f3.0 b3.0 f3.1 b3.1 f1.2 b1.0 f1.3 b1.1 f3.2 b3.2 f3.3 b3.3 b1.2 b1.3"
    )
    timeline = simulate_orders(build_pipeline(2, 2), (first, last))
    # Eight forwards of 1 and backwards of 2 a rank, and a wait of one each.
    assert timeline.length == 27
    assert timeline.bubble == pytest.approx(1 / 9)


@pytest.mark.slow
@given(STAGES, ROUNDS, GROUPS, st.booleans())
def test_orders_are_complete_and_free_of_deadlocks(stages, rounds, groups, forward_only):
    layout = build_pipeline(stages, rounds)
    parts = stages * groups
    orders = make_orders(layout, parts, forward_only=forward_only)
    kinds = ("forward",) if forward_only else ("forward", "backward")
    for rank, order in enumerate(orders):
        stage_indices = [coordinates.stage for coordinates in layout.list_coordinates(rank)]
        assert sorted(order, key=repr) == sorted(
            (
                Task(kind, index, stage)
                for kind in kinds
                for index in range(parts)
                for stage in stage_indices
            ),
            key=repr,
        )
        for kind in kinds:
            for stage in stage_indices:
                # So the sender and the receiver know the next message.
                micro_batches = [
                    task.micro_batch for task in order if (task.kind, task.stage) == (kind, stage)
                ]
                assert micro_batches == list(range(parts))
    for pending in (MAX_PENDING_SENDS, MAX_PENDING_SENDS + 1, None):
        assert len(simulate_orders(layout, orders, max_pending_sends=pending).spans) == len(
            kinds
        ) * parts * len(layout.stages)


@pytest.mark.slow
@given(STAGES, ROUNDS, GROUPS, COST, COST)
def test_the_bubble_matches_the_formula(stages, rounds, groups, forward, backward):
    layout = build_pipeline(stages, rounds)
    parts = stages * groups
    cost = {"forward": forward, "backward": backward}
    for forward_only in (False, True):
        orders = make_orders(layout, parts, forward_only=forward_only)
        timeline = simulate_orders(layout, orders, cost)
        assert timeline.bubble == pytest.approx(compute_ideal_bubble(stages, parts, rounds))
        assert timeline.bubble < compute_ideal_bubble(stages, parts)
        limited = simulate_orders(layout, orders, cost, max_pending_sends=MAX_PENDING_SENDS)
        assert limited.bubble == timeline.bubble


@given(STAGES, ROUNDS, GROUPS)
def test_a_rank_keeps_its_warm_up_plus_one_micro_batches(stages, rounds, groups):
    orders = make_orders(build_pipeline(stages, rounds), stages * groups)
    limits = [2 * (stages - 1 - rank) + (rounds - 1) * stages + 1 for rank in range(stages)]
    assert list(map(count_max_in_flight, orders)) == [
        min(limit, rounds * stages * groups) for limit in limits
    ]


@given(layouts(), st.integers(1, 3))
def test_members_have_the_same_order(layout, groups):
    orders = make_orders(layout, layout.stages_per_round * groups)
    assert simulate_orders(layout, orders, max_pending_sends=MAX_PENDING_SENDS).length > 0
    for stage in range(layout.stages_per_round):
        assert len({orders[rank] for rank in layout.list_stage_ranks(stage)}) == 1


@given(STAGES, ROUNDS, st.integers(1, 12))
def test_inference_accepts_any_number_of_micro_batches(stages, rounds, parts):
    layout = build_pipeline(stages, rounds)
    timeline = simulate_orders(
        layout, make_orders(layout, parts, forward_only=True), max_pending_sends=MAX_PENDING_SENDS
    )
    assert len(timeline.spans) == parts * len(layout.stages)


def test_rejects_a_smaller_last_group_that_would_deadlock(messages):
    layout = build_pipeline(4, 3)
    with messages.raises(ValueError):
        make_orders(layout, 9)
    # The order that it would have: forwards and backwards with the same warm-up.
    orders = []
    for rank in range(4):
        full_order = list_interleaved_tasks(rank, 4, 3, range(12))
        forward = [task for task in full_order if task.kind == "forward" and task.micro_batch < 9]
        backward = [task for task in full_order if task.kind == "backward" and task.micro_batch < 9]
        warm_up = 2 * (3 - rank) + 8
        steady = [task for pair in zip(forward[warm_up:], backward, strict=False) for task in pair]
        orders.append((*forward[:warm_up], *steady, *backward[len(forward) - warm_up :]))
    with pytest.raises(DeadlockError, match="waits forever"):
        simulate_orders(layout, orders)


def test_rejects_rounds_without_interleaved_and_vice_versa(messages):
    with messages.raises(ValueError):
        list_step_orders(build_pipeline(2, 2), split_batch(2, 2), "1f1b")
    with messages.raises(ValueError):
        make_orders(build_layout(2), 2)
