"""Task orders of a step: complete, deadlock-free, with minimal idle time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.schedule.list_scheduling import MAX_PENDING_SENDS
from spbench_core.schedule.orders import (
    Task,
    compute_ideal_bubble,
    count_max_in_flight,
    count_trailing_weights,
    list_stage_tasks,
    list_zero_bubble_kinds,
)
from spbench_core.schedule.step import list_step_orders
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


def compute_halves_bubble(
    stages: int, parts: int, times: int, forward: float = 1.0, backward: float = 2.0
) -> float:
    """Return the bubble, the share of idle time, of mirrored gpipe with equal stages.

    ``2 * times`` halves of ``parts`` micro-batches follow each other. Each half except the first
    starts after the last stage finishes the previous half, with a delay of ``stages - 1`` times the
    longer of forward and backward.
    """
    work = 2 * times * parts * (forward + backward)
    next_starts = (2 * times - 1) * max(forward, backward)
    return 1 - work / (work + (stages - 1) * (forward + backward + next_starts))


def make_step_orders(layout, parts, schedule, *, times=1, forward_only=False):
    batches = split_batch(2 * parts, parts, mirrored=layout.mirrored, times=times)
    return batches, list_step_orders(layout, batches, schedule, forward_only=forward_only)


FULL_BACKWARD = ("forward", "backward")
SPLIT_BACKWARD = ("forward", "data", "weights")
"""The kinds of tasks; split means that weight gradients are a separate task."""


def check_complete(layout, batches, orders, *, forward_only=False, kinds=FULL_BACKWARD):
    """Assert that each rank has each task of its stage and direction exactly once."""
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
    """Assert that tasks start after their inputs and that no tasks of a rank overlap."""
    stages = len(layout.stages)
    timeline = simulate_orders(layout, orders)
    for task, (start, _) in timeline.spans.items():
        input_task = find_input(task, stages)
        if input_task is not None:
            assert timeline.spans[input_task][1] <= start
        if task.kind in ("backward", "data"):
            forward_task = Task("forward", task.micro_batch, task.stage, task.direction)
            assert timeline.spans[forward_task][1] <= start
    for order in orders:
        previous_end = 0.0
        for task in order:
            assert timeline.spans[task][0] >= previous_end
            previous_end = timeline.spans[task][1]


def check_first_in_first_out(layout, orders):
    """Assert that receivers take messages in the order of sending."""
    stages = len(layout.stages)
    for order in orders:
        for direction in layout.directions:
            for kind in ("forward", "backward", "data"):
                sent_tasks = [
                    task for task in order if (task.kind, task.direction) == (kind, direction)
                ]
                if not sent_tasks or (receiver := find_receiver(sent_tasks[0], stages)) is None:
                    continue
                (rank, *_) = layout.list_stage_ranks(receiver.stage, 0, direction)
                received_micro_batches = [
                    task.micro_batch
                    for task in orders[rank]
                    if (task.kind, task.direction) == (kind, direction)
                ]
                assert received_micro_batches == [task.micro_batch for task in sent_tasks]


@given(STAGES, PARTS, SCHEDULE, st.booleans())
def test_orders_of_one_pipeline_are_valid(stages, parts, schedule, forward_only):
    layout = build_layout(stages)
    batches, orders = make_step_orders(layout, parts, schedule, forward_only=forward_only)
    check_complete(layout, batches, orders, forward_only=forward_only)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    for pending in (1, 2, None):
        assert simulate_orders(layout, orders, max_pending_sends=pending).length > 0


@given(STAGES, st.integers(1, 14))
def test_1f1b_deep_keeps_more_micro_batches_in_flight(stages, parts):
    layout = build_layout(stages)
    batches, orders = make_step_orders(layout, parts, "1f1b-deep")
    check_complete(layout, batches, orders)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    in_flight = [min(parts, 2 * (stages - stage) - 1) for stage in range(stages)]
    assert list(map(count_max_in_flight, orders)) == in_flight
    for pending in (MAX_PENDING_SENDS, MAX_PENDING_SENDS + 1, None):
        assert simulate_orders(layout, orders, max_pending_sends=pending).bubble == pytest.approx(
            compute_ideal_bubble(stages, parts)
        )


@given(STAGES, st.integers(1, 14))
def test_deferred_weight_gradients_fill_the_bubble(stages, parts):
    layout = build_layout(stages)
    batches, orders = make_step_orders(layout, parts, "zb-h1")
    check_complete(layout, batches, orders, kinds=SPLIT_BACKWARD)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    assert list(map(count_max_in_flight, orders)) == [min(stages, parts)] * stages
    for pending in (MAX_PENDING_SENDS, MAX_PENDING_SENDS + 1, None):
        bubble = simulate_orders(layout, orders, max_pending_sends=pending).bubble
        assert bubble <= compute_ideal_bubble(stages, parts) + 1e-12
        if parts >= stages:
            assert bubble == pytest.approx((stages - 1) / (3 * parts + stages - 1))


@given(STAGES, PARTS)
def test_adds_weight_gradients_in_order_of_micro_batches(stages, parts):
    _, orders = make_step_orders(build_layout(stages), parts, "zb-h1")
    for order in orders:
        for kind in SPLIT_BACKWARD:
            micro_batches = [task.micro_batch for task in order if task.kind == kind]
            assert micro_batches == list(range(parts))


@pytest.mark.slow
@settings(max_examples=60)
@given(GRIDS, st.integers(0, 4), PARTS, TIMES, SCHEDULE, st.booleans())
def test_orders_of_mirrored_pipelines_are_valid(
    grids, extra_stages, parts, times, schedule, forward_only
):
    layout = build_layout(max(1, len(grids) + extra_stages), grids, mirrored=True)
    batches, orders = make_step_orders(
        layout, parts, schedule, times=times, forward_only=forward_only
    )
    check_complete(layout, batches, orders, forward_only=forward_only)
    check_dependencies(layout, orders)
    check_first_in_first_out(layout, orders)
    for pending in (MAX_PENDING_SENDS, MAX_PENDING_SENDS + 1, None):
        assert simulate_orders(layout, orders, max_pending_sends=pending).length > 0


@pytest.mark.slow
@settings(max_examples=60)
@given(GRIDS, st.integers(0, 3), st.integers(1, 3), PARTS, SCHEDULE)
def test_tiles_and_members_have_the_same_order(grids, extra_stages, members, parts, schedule):
    layout = build_layout(max(1, len(grids) + extra_stages), grids, members=members)
    batches, orders = make_step_orders(layout, parts, schedule)
    check_complete(layout, batches, orders)
    check_dependencies(layout, orders)
    assert simulate_orders(layout, orders, max_pending_sends=1).length > 0
    for stage in range(len(layout.stages)):
        assert len({orders[rank] for rank in layout.list_stage_ranks(stage)}) == 1


@given(STAGES, PARTS, SCHEDULE, st.integers(1, 4), st.integers(1, 4))
def test_the_bubble_matches_the_formula(stages, parts, schedule, forward, backward):
    layout = build_layout(stages)
    _, orders = make_step_orders(layout, parts, schedule)
    cost = {"forward": float(forward), "backward": float(backward)}
    timeline = simulate_orders(layout, orders, cost)
    assert timeline.bubble == pytest.approx(compute_ideal_bubble(stages, parts))
    # With equal stages, waiting for all sends except the last one changes nothing.
    assert simulate_orders(layout, orders, cost, max_pending_sends=1).bubble == timeline.bubble


@given(STAGES, PARTS)
def test_the_bubble_of_inference_matches_the_formula(stages, parts):
    layout = build_layout(stages)
    _, orders = make_step_orders(layout, parts, "gpipe", forward_only=True)
    assert simulate_orders(layout, orders).bubble == pytest.approx(
        compute_ideal_bubble(stages, parts)
    )


@given(STAGES, PARTS, TIMES, st.integers(1, 4), st.integers(1, 4))
def test_the_bubble_of_mirrored_halves_matches_the_formula(stages, parts, times, forward, backward):
    layout = build_layout(stages, mirrored=True)
    _, orders = make_step_orders(layout, parts, "gpipe", times=times)
    cost = {"forward": float(forward), "backward": float(backward)}
    timeline = simulate_orders(layout, orders, cost)
    assert timeline.bubble == pytest.approx(
        compute_halves_bubble(stages, parts, times, forward, backward)
    )


@given(STAGES, PARTS)
def test_1f1b_keeps_fewer_micro_batches_than_gpipe(stages, parts):
    layout = build_layout(stages)
    _, gpipe = make_step_orders(layout, parts, "gpipe")
    assert list(map(count_max_in_flight, gpipe)) == [parts] * stages
    _, one_f_one_b = make_step_orders(layout, parts, "1f1b")
    assert list(map(count_max_in_flight, one_f_one_b)) == [
        min(parts, stages - stage) for stage in range(stages)
    ]


@given(STAGES, PARTS, TIMES)
def test_mirrored_halves_do_not_overlap_on_a_rank(stages, parts, times):
    layout = build_layout(stages, mirrored=True)
    _, orders = make_step_orders(layout, parts, "gpipe", times=times)
    assert {count_max_in_flight(order) for order in orders} == {parts}
    for order in orders:
        in_flight = {0: 0, 1: 0}
        for task in order:
            in_flight[task.direction] += 1 if task.kind == "forward" else -1
            assert 0 in in_flight.values()


@pytest.mark.parametrize("stages", range(2, 7))
def test_two_pipelines_are_not_slower_than_one(stages):
    for parts in (1, 2, 3, 4, 8):
        single_layout = build_layout(stages)
        mirrored_layout = build_layout(stages, mirrored=True)
        _, single_orders = make_step_orders(single_layout, 2 * parts, "1f1b")
        _, mirrored_orders = make_step_orders(mirrored_layout, parts, "1f1b")
        assert (
            simulate_orders(
                mirrored_layout, mirrored_orders, max_pending_sends=MAX_PENDING_SENDS
            ).length
            <= simulate_orders(single_layout, single_orders).length
        )
        # Each of the two stages of a rank keeps at most as many as the first stage of one pipeline.
        assert max(map(count_max_in_flight, mirrored_orders)) <= 2 * stages
    # With one micro-batch per direction, the pipelines fill each other's idle time.
    (_, mirrored_orders) = make_step_orders(mirrored_layout, 1, "1f1b")
    (_, single_orders) = make_step_orders(single_layout, 2, "1f1b")
    assert (
        simulate_orders(mirrored_layout, mirrored_orders).length
        < simulate_orders(single_layout, single_orders).length
    )


def test_mirrored_halves_are_faster_than_two_steps_of_one_half():
    layout = build_layout(4, mirrored=True)
    _, halves = make_step_orders(layout, 1, "gpipe")
    single_layout = build_layout(4)
    _, half = make_step_orders(single_layout, 1, "gpipe")
    assert simulate_orders(layout, halves).length < 2 * simulate_orders(single_layout, half).length


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_1f1b_deadlocks_if_each_send_is_awaited(stages, messages):
    layout = build_layout(stages)
    _, orders = make_step_orders(layout, 4, "1f1b")
    with messages.raises(DeadlockError):
        simulate_orders(layout, orders, max_pending_sends=0)
    _, orders = make_step_orders(layout, 4, "gpipe")
    assert simulate_orders(layout, orders, max_pending_sends=0).length > 0


def test_detects_the_deadlock_of_a_wrong_order():
    layout = build_layout(2)
    _, (first, last) = make_step_orders(layout, 2, "gpipe")
    swapped = (first[2], *first[:2], first[3])  # backward before any forward
    with pytest.raises(DeadlockError, match="rank 0"):
        simulate_orders(layout, (swapped, last))
    with pytest.raises(DeadlockError, match="micro_batch=0"):
        simulate_orders(layout, (first[1:], last))  # the first micro-batch is skipped


def test_detects_ranks_of_a_stage_with_different_orders():
    layout = build_layout(1, [Grid(1, 2)])
    _, (order, _) = make_step_orders(layout, 2, "gpipe")
    swapped = (order[1], order[0], *order[2:])
    with pytest.raises(DeadlockError):
        simulate_orders(layout, (order, swapped))


def test_the_order_of_1f1b_matches_a_derivation_by_hand():
    order = [
        f"{task.kind[0]}{task.micro_batch}" for task in list_stage_tasks("1f1b", 0, 3, range(4))
    ]
    assert order == ["f0", "f1", "f2", "b0", "f3", "b1", "b2", "b3"]
    order = [
        f"{task.kind[0]}{task.micro_batch}" for task in list_stage_tasks("1f1b", 2, 3, range(2))
    ]
    assert order == ["f0", "b0", "f1", "b1"]


def test_rejects_an_unknown_schedule(messages):
    with messages.raises(ValueError):
        list_stage_tasks("zero", 0, 1, [0])


@given(st.integers(1, 8), st.integers(1, 20))
def test_counts_trailing_weight_gradients_without_the_order(stages, parts):
    for stage in range(stages):
        kinds = list_zero_bubble_kinds(stage, stages, parts)
        trailing = kinds[::-1].index("data")
        assert count_trailing_weights(stage, stages, parts) == trailing
