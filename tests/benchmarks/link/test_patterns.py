"""Who sends to whom where all ranks send at once."""

from hypothesis import given
from hypothesis import strategies as st

from spbench_workers.benchmarks.link.patterns import draw_orders, make_halves, make_ring


def parts(make, order):
    return {rank: make(order, rank, "made up") for rank in order}


def sent(patterns):
    """The messages that are sent, by way, and those that are expected."""
    away = [
        (way, rank, to) for rank, part in patterns.items() for way, to in enumerate(part.targets)
    ]
    due = [
        (way, source, rank)
        for rank, part in patterns.items()
        for way, source in enumerate(part.sources)
    ]
    return sorted(away), sorted(due)


@given(st.integers(2, 30), st.integers(0, 9))
def test_each_message_of_a_ring_is_expected_by_its_rank_in_its_place(size, seed):
    for _, order in draw_orders(size, 2, seed):
        away, due = sent(parts(make_ring, order))
        assert away == due
        assert len(away) == 2 * size


@given(st.integers(2, 30), st.integers(0, 9))
def test_halves_exchange_pair_by_pair_and_an_odd_rank_rests(size, seed):
    for _, order in draw_orders(size, 2, seed):
        patterns = parts(make_halves, order)
        away, due = sent(patterns)
        assert away == due
        assert sum(not part.targets for part in patterns.values()) == size % 2


def test_halves_in_order_are_the_first_ranks_and_the_last():
    assert [part.targets for part in parts(make_halves, range(4)).values()] == [
        (2,),
        (3,),
        (0,),
        (1,),
    ]


def test_random_orders_follow_from_the_seed():
    assert draw_orders(20, 3, 5) == draw_orders(20, 3, 5)
    assert draw_orders(20, 3, 5) != draw_orders(20, 3, 6)
    assert [name for name, _ in draw_orders(9, 2, 1)] == ["in order", "random 1", "random 2"]
