"""Stages out of layers."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.layout.balance import balance_layers, layer_ranges, read_balance

COSTS = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=9)


def all_balances(layers, stages):
    for cuts in combinations(range(1, layers), stages - 1):
        ends = (0, *cuts, layers)
        yield tuple(last - first for first, last in pairwise(ends))


def times(costs, balance, ranks):
    return [
        sum(costs[first:last]) / shared_by
        for (first, last), shared_by in zip(layer_ranges(balance), ranks, strict=True)
    ]


@given(COSTS, st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_no_balance_is_better(costs, ranks):
    ranks = ranks[: len(costs)]
    found = balance_layers(costs, ranks)
    assert sum(found) == len(costs)
    assert min(found) >= 1

    def quality(balance):
        taken = times(costs, balance, ranks)
        return max(taken), sum(time * time for time in taken)

    best = min(quality(balance) for balance in all_balances(len(costs), len(ranks)))
    assert quality(found) == pytest.approx(best)


def test_equal_costs_make_equal_stages():
    assert balance_layers([1.0] * 38, [1, 1]) == (19, 19)
    assert sorted(balance_layers([1.0] * 7, [1, 1, 1])) == [2, 2, 3]


def test_a_stage_of_more_ranks_takes_more_layers():
    assert balance_layers([1.0] * 10, [4, 1]) == (8, 2)
    assert balance_layers([1.0] * 10, [1, 1]) == (5, 5)


def test_the_most_even_of_the_quickest_is_taken():
    # 9 is the least that any stage can have; the other layers are shared out all the same.
    assert balance_layers([9.0, 1, 1, 1, 1], [1, 1, 1]) == (1, 2, 2)


def test_a_network_of_many_layers_is_cut_quickly():
    assert sum(balance_layers([float(1 + index % 7) for index in range(300)], [1] * 16)) == 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2,3", "2,3 has 2 numbers, one for each of 3 stages is needed"),
        ("9", "9 has 1 number, one for"),
        ("2,3,5", "2,3,5 has 10 layers, the model has 9"),
        ("2,0,7", "leaves a stage without layers"),
        ("2,-1,8", "leaves a stage without layers"),
        ("2,x,7", "no list of numbers"),
        ("", "no list of numbers"),
    ],
)
def test_a_wrong_balance_is_refused_with_the_right_number(text, message):
    with pytest.raises(ValueError, match=message):
        read_balance(text, 3, 9)


def test_a_balance_is_read():
    assert read_balance("2,3,4", 3, 9) == (2, 3, 4)
    assert read_balance(" 2, 3 ,4", 3, 9) == (2, 3, 4)
    assert layer_ranges((2, 3, 4)) == ((0, 2), (2, 5), (5, 9))


def test_there_are_no_more_stages_than_layers():
    with pytest.raises(ValueError, match="4 stages are more than the 3 layers"):
        balance_layers([1.0] * 3, [1] * 4)
