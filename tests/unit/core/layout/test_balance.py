"""Balances: how many layers each stage has."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.layout.balance import balance_layers, list_layer_ranges, read_balance

COSTS = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=9)


def enumerate_balances(layers, stages):
    for cuts in combinations(range(1, layers), stages - 1):
        ends = (0, *cuts, layers)
        yield tuple(last - first for first, last in pairwise(ends))


def stage_times(costs, balance, ranks):
    return [
        sum(costs[first:last]) / rank_count
        for (first, last), rank_count in zip(list_layer_ranges(balance), ranks, strict=True)
    ]


@given(COSTS, st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_no_other_balance_is_faster_or_more_even(costs, ranks):
    ranks = ranks[: len(costs)]
    balance = balance_layers(costs, ranks)
    assert sum(balance) == len(costs)
    assert min(balance) >= 1

    def score(candidate):
        times = stage_times(costs, candidate, ranks)
        return max(times), sum(time * time for time in times)

    best = min(score(candidate) for candidate in enumerate_balances(len(costs), len(ranks)))
    assert score(balance) == pytest.approx(best)


def test_equal_costs_give_equal_stages():
    assert balance_layers([1.0] * 38, [1, 1]) == (19, 19)
    assert sorted(balance_layers([1.0] * 7, [1, 1, 1])) == [2, 2, 3]


def test_a_stage_with_more_ranks_gets_more_layers():
    assert balance_layers([1.0] * 10, [4, 1]) == (8, 2)
    assert balance_layers([1.0] * 10, [1, 1]) == (5, 5)


def test_prefers_the_most_even_of_the_fastest_balances():
    # The slowest stage takes at least 9. The other layers are still divided evenly.
    assert balance_layers([9.0, 1, 1, 1, 1], [1, 1, 1]) == (1, 2, 2)


def test_balances_a_network_of_many_layers_in_time():
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
def test_rejects_a_balance_with_wrong_numbers(text, message):
    with pytest.raises(ValueError, match=message):
        read_balance(text, 3, 9)


def test_reads_a_balance():
    assert read_balance("2,3,4", 3, 9) == (2, 3, 4)
    assert read_balance(" 2, 3 ,4", 3, 9) == (2, 3, 4)
    assert list_layer_ranges((2, 3, 4)) == ((0, 2), (2, 5), (5, 9))


def test_rejects_more_stages_than_layers(messages):
    with messages.raises(ValueError):
        balance_layers([1.0] * 3, [1] * 4)
