"""Patterns of messages if all ranks send at once."""

from hypothesis import given
from hypothesis import strategies as st

from spbench_workers.benchmarks.link.patterns import draw_orders, make_halves, make_ring


def make_parts(make, order):
    return {rank: make(order, rank, "made up") for rank in order}


def list_messages(patterns):
    """Return the sent messages and the expected ones, by direction."""
    sends = [
        (direction, rank, target)
        for rank, part in patterns.items()
        for direction, target in enumerate(part.targets)
    ]
    expected = [
        (direction, source, rank)
        for rank, part in patterns.items()
        for direction, source in enumerate(part.sources)
    ]
    return sorted(sends), sorted(expected)


@given(st.integers(2, 30), st.integers(0, 9))
def test_each_message_of_a_ring_is_expected(size, seed):
    for _, order in draw_orders(size, 2, seed):
        sends, expected = list_messages(make_parts(make_ring, order))
        assert sends == expected
        assert len(sends) == 2 * size


@given(st.integers(2, 30), st.integers(0, 9))
def test_halves_exchange_in_pairs_and_an_odd_rank_waits(size, seed):
    for _, order in draw_orders(size, 2, seed):
        patterns = make_parts(make_halves, order)
        sends, expected = list_messages(patterns)
        assert sends == expected
        assert sum(not part.targets for part in patterns.values()) == size % 2


def test_halves_in_order_are_the_first_ranks_and_the_last():
    assert [part.targets for part in make_parts(make_halves, range(4)).values()] == [
        (2,),
        (3,),
        (0,),
        (1,),
    ]


def test_random_orders_follow_from_the_seed():
    assert draw_orders(20, 3, 5) == draw_orders(20, 3, 5)
    assert draw_orders(20, 3, 5) != draw_orders(20, 3, 6)
    assert [name for name, _ in draw_orders(9, 2, 1)] == ["in order", "random 1", "random 2"]
