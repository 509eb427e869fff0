"""The order of work in a step: complete, in order, never stuck, and idle as long as it must be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.schedule.list_scheduling import MAX_PENDING_SENDS
from spbench_core.schedule.orders import (
    Task,
    count_trailing_weights,
    ideal_bubble,
    max_in_flight,
    stage_order,
    zero_bubble_kinds,
)
from spbench_core.schedule.step import step_orders
from spbench_core.schedule.timeline import (
    DeadlockError,
    find_input,
    find_receiver,
    simulate_orders,
)

STAGES = st.integers(1, 6)
PARTS = st.integers(1, 8)
TIMES = st.integers(1, 3)
SCHEDULE = st.sampled_from(["1f1b", "gpipe"])
GRIDS = st.lists(st.sampled_from([Grid(1, 2), Grid(2, 2), Grid(2, 3)]), max_size=2)


def halves_bubble(
    stages: int, parts: int, times: int, forward: float = 1.0, backward: float = 2.0
) -> float:
    """Return the bubble of mirrored gpipe, each stage taking equally long: the share of waiting.

    ``2 * times`` halves of ``parts`` micro-batches follow each other; each but the first starts
    ``stages - 1`` times the longer of forward and backward after the last stage is done with the
    half before.
    """
    work = 2 * times * parts * (forward + backward)
    follow = (2 * times - 1) * max(forward, backward)
    return 1 - work / (work + (stages - 1) * (forward + backward + follow))


def step(layout, parts, schedule, *, times=1, forward_only=False):
    batches = split_batch(2 * parts, parts, mirrored=layout.mirrored, times=times)
    return batches, step_orders(layout, batches, schedule, forward_only=forward_only)


WHOLE = ("forward", "backward")
APART = ("forward", "data", "weights")
"""The kinds of tasks, where gradients of weights come with those of data, and apart from them."""


def check_complete(layout, batches, orders, *, forward_only=False, kinds=WHOLE):
    """Each micro-batch passes each stage of its direction, on all its ranks, in each kind once."""
    kinds = ("forward",) if forward_only else kinds
    for rank, order in enumerate(orders):
        expected = {
            Task(kind, index, layout.locate_rank(rank, batch.direction).stage, batch.direction)
            for index, batch in enumerate(batches)
            for kind in kinds
        }
        assert len(order) == len(expected)
        assert set(order) == expected


def check_dependencies(layout, orders):
    """No task starts before that ends which it needs, and no rank does two tasks at a time."""
    stages = len(layout.stages)
    line = simulate_orders(layout, orders)
    for task, (start, _) in line.spans.items():
        earlier = find_input(task, stages)
        if earlier is not None:
            assert line.spans[earlier][1] <= start
        if task.kind in ("backward", "data"):
            own = Task("forward", task.micro_batch, task.stage, task.direction)
            assert line.spans[own][1] <= start
    for order in orders:
        ends = 0.0
        for task in order:
            assert line.spans[task][0] >= ends
            ends = line.spans[task][1]


def check_first_in_first_out(layout, orders):
    """Receivers take the messages of a way in the order in which they are sent."""
    stages = len(layout.stages)
    for order in orders:
        for direction in layout.directions:
            for kind in ("forward", "backward", "data"):
                sent = [t for t in order if (t.kind, t.direction) == (kind, direction)]
                if not sent or (receiver := find_receiver(sent[0], stages)) is None:
                    continue
                (rank, *_) = layout.list_stage_ranks(receiver.stage, 0, direction)
                received = [
                    t.micro_batch
                    for t in orders[rank]
                    if (t.kind, t.direction) == (kind, direction)
                ]
                assert received == [task.micro_batch for task in sent]


@given(STAGES, PARTS, SCHEDULE, st.booleans())
def test_one_pipeline(stages, parts, schedule, forward_only):
    layout = build_layout(stages)
    batches, orders = step(layout, parts, schedule, forward_only=forward_only)
    check_complete(layout, batches, orders, forward_only=forward_only)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    for pending in (1, 2, None):
        assert simulate_orders(layout, orders, pending=pending).length > 0


@given(STAGES, st.integers(1, 14))
def test_one_pipeline_with_more_ahead(stages, parts):
    layout = build_layout(stages)
    batches, orders = step(layout, parts, "1f1b-deep")
    check_complete(layout, batches, orders)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    held = [min(parts, 2 * (stages - stage) - 1) for stage in range(stages)]
    assert list(map(max_in_flight, orders)) == held
    for pending in (MAX_PENDING_SENDS, MAX_PENDING_SENDS + 1, None):
        assert simulate_orders(layout, orders, pending=pending).bubble == pytest.approx(
            ideal_bubble(stages, parts)
        )


@given(STAGES, st.integers(1, 14))
def test_gradients_of_weights_fill_the_bubble(stages, parts):
    layout = build_layout(stages)
    batches, orders = step(layout, parts, "zb-h1")
    check_complete(layout, batches, orders, kinds=APART)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    assert list(map(max_in_flight, orders)) == [min(stages, parts)] * stages
    for pending in (MAX_PENDING_SENDS, MAX_PENDING_SENDS + 1, None):
        bubble = simulate_orders(layout, orders, pending=pending).bubble
        assert bubble <= ideal_bubble(stages, parts) + 1e-12
        if parts >= stages:
            assert bubble == pytest.approx((stages - 1) / (3 * parts + stages - 1))


@given(STAGES, PARTS)
def test_gradients_of_weights_are_added_in_the_order_of_the_micro_batches(stages, parts):
    _, orders = step(build_layout(stages), parts, "zb-h1")
    for order in orders:
        for kind in APART:
            found = [task.micro_batch for task in order if task.kind == kind]
            assert found == list(range(parts))


@pytest.mark.slow
@settings(max_examples=60)
@given(GRIDS, st.integers(0, 4), PARTS, TIMES, SCHEDULE, st.booleans())
def test_two_mirrored_pipelines(grids, more, parts, times, schedule, forward_only):
    layout = build_layout(max(1, len(grids) + more), grids, mirrored=True)
    batches, orders = step(layout, parts, schedule, times=times, forward_only=forward_only)
    check_complete(layout, batches, orders, forward_only=forward_only)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    for pending in (MAX_PENDING_SENDS, MAX_PENDING_SENDS + 1, None):
        assert simulate_orders(layout, orders, pending=pending).length > 0


@pytest.mark.slow
@settings(max_examples=60)
@given(GRIDS, st.integers(0, 3), st.integers(1, 3), PARTS, SCHEDULE)
def test_tiles_and_members_work_together(grids, more, members, parts, schedule):
    layout = build_layout(max(1, len(grids) + more), grids, members=members)
    batches, orders = step(layout, parts, schedule)
    check_complete(layout, batches, orders)
    check_dependencies(layout, orders)
    assert simulate_orders(layout, orders, pending=1).length > 0
    for stage in range(len(layout.stages)):
        assert len({orders[rank] for rank in layout.list_stage_ranks(stage)}) == 1


@given(STAGES, PARTS, SCHEDULE, st.integers(1, 4), st.integers(1, 4))
def test_the_bubble_is_as_the_formula_says(stages, parts, schedule, forward, backward):
    layout = build_layout(stages)
    _, orders = step(layout, parts, schedule)
    cost = {"forward": float(forward), "backward": float(backward)}
    line = simulate_orders(layout, orders, cost)
    assert line.bubble == pytest.approx(ideal_bubble(stages, parts))
    # To wait for all sends of a way but the last changes nothing while stages are equally long.
    assert simulate_orders(layout, orders, cost, pending=1).bubble == line.bubble


@given(STAGES, PARTS)
def test_the_bubble_of_inference(stages, parts):
    layout = build_layout(stages)
    _, orders = step(layout, parts, "gpipe", forward_only=True)
    assert simulate_orders(layout, orders).bubble == pytest.approx(ideal_bubble(stages, parts))


@given(STAGES, PARTS, TIMES, st.integers(1, 4), st.integers(1, 4))
def test_the_bubble_of_mirrored_halves(stages, parts, times, forward, backward):
    layout = build_layout(stages, mirrored=True)
    _, orders = step(layout, parts, "gpipe", times=times)
    cost = {"forward": float(forward), "backward": float(backward)}
    line = simulate_orders(layout, orders, cost)
    assert line.bubble == pytest.approx(halves_bubble(stages, parts, times, forward, backward))


@given(STAGES, PARTS)
def test_memory_of_one_pipeline(stages, parts):
    layout = build_layout(stages)
    _, gpipe = step(layout, parts, "gpipe")
    assert list(map(max_in_flight, gpipe)) == [parts] * stages
    _, one = step(layout, parts, "1f1b")
    assert list(map(max_in_flight, one)) == [min(parts, stages - stage) for stage in range(stages)]


@given(STAGES, PARTS, TIMES)
def test_mirrored_halves_never_meet_on_a_rank(stages, parts, times):
    layout = build_layout(stages, mirrored=True)
    _, orders = step(layout, parts, "gpipe", times=times)
    assert {max_in_flight(order) for order in orders} == {parts}
    for order in orders:
        open_in = {0: 0, 1: 0}
        for task in order:
            open_in[task.direction] += 1 if task.kind == "forward" else -1
            assert 0 in open_in.values()


@pytest.mark.parametrize("stages", range(2, 7))
def test_two_pipelines_are_not_slower_than_one_with_as_many_micro_batches(stages):
    for parts in (1, 2, 3, 4, 8):
        one = build_layout(stages)
        two = build_layout(stages, mirrored=True)
        _, alone = step(one, 2 * parts, "1f1b")
        _, both = step(two, parts, "1f1b")
        assert (
            simulate_orders(two, both, pending=MAX_PENDING_SENDS).length
            <= simulate_orders(one, alone).length
        )
        # Of the two stages of a rank each holds as many as the first of one pipeline, at the most.
        assert max(map(max_in_flight, both)) <= 2 * stages
    # With one micro-batch each way the ends fill each other's idle time.
    (_, both) = step(two, 1, "1f1b")
    (_, alone) = step(one, 2, "1f1b")
    assert simulate_orders(two, both).length < simulate_orders(one, alone).length


def test_mirrored_halves_are_quicker_than_one_pipeline_half_after_half():
    layout = build_layout(4, mirrored=True)
    _, halves = step(layout, 1, "gpipe")
    alone = build_layout(4)
    _, half = step(alone, 1, "gpipe")
    assert simulate_orders(layout, halves).length < 2 * simulate_orders(alone, half).length


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_send_that_is_waited_for_at_once_hangs_1f1b(stages):
    layout = build_layout(stages)
    _, orders = step(layout, 4, "1f1b")
    with pytest.raises(DeadlockError, match="waits forever at Task"):
        simulate_orders(layout, orders, pending=0)
    _, orders = step(layout, 4, "gpipe")
    assert simulate_orders(layout, orders, pending=0).length > 0


def test_a_wrong_order_is_seen_to_hang():
    layout = build_layout(2)
    _, (first, last) = step(layout, 2, "gpipe")
    swapped = (first[2], *first[:2], first[3])  # backward before any forward
    with pytest.raises(DeadlockError, match="rank 0"):
        simulate_orders(layout, (swapped, last))
    with pytest.raises(DeadlockError, match="micro_batch=0"):
        simulate_orders(layout, (first[1:], last))  # the first micro-batch is skipped


def test_ranks_of_one_stage_must_agree():
    layout = build_layout(1, [Grid(1, 2)])
    _, (one, _) = step(layout, 2, "gpipe")
    other = (one[1], one[0], *one[2:])
    with pytest.raises(DeadlockError):
        simulate_orders(layout, (one, other))


def test_the_order_of_1f1b_by_hand():
    words = [f"{task.kind[0]}{task.micro_batch}" for task in stage_order("1f1b", 0, 3, range(4))]
    assert words == ["f0", "f1", "f2", "b0", "f3", "b1", "b2", "b3"]
    words = [f"{task.kind[0]}{task.micro_batch}" for task in stage_order("1f1b", 2, 3, range(2))]
    assert words == ["f0", "b0", "f1", "b1"]


def test_there_is_no_other_schedule():
    with pytest.raises(ValueError, match="'zero' is none of 1f1b, gpipe"):
        stage_order("zero", 0, 1, [0])


@given(st.integers(1, 8), st.integers(1, 20))
def test_what_zero_bubble_leaves_for_the_end_is_counted_without_the_order(stages, parts):
    for stage in range(stages):
        kinds = zero_bubble_kinds(stage, stages, parts)
        after = kinds[::-1].index("data")
        assert count_trailing_weights(stage, stages, parts) == after
