"""Schedules of pairs of ranks, and the comparison of their bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_workers.benchmarks.link.messages import compare_bytes, invert_bytes, random_bytes
from spbench_workers.pingpong.schedule import MAX_SERIAL, pair_rounds


@given(st.integers(2, 40))
def test_all_pairs_meet_once(size):
    pairs_met = [pair for pairs in pair_rounds(size, "all") for pair in pairs]
    assert sorted(pairs_met) == [(a, b) for a in range(size) for b in range(a + 1, size)]


@given(st.integers(2, 80))
def test_neighbours_meet_once(size):
    pairs_met = [pair for pairs in pair_rounds(size, "neighbours") for pair in pairs]
    assert sorted(pairs_met) == [(rank, rank + 1) for rank in range(size - 1)]


@given(st.integers(2, 80), st.sampled_from(["all", "neighbours"]))
def test_no_rank_is_in_two_pairs_at_once(size, pairs):
    for members in pair_rounds(size, pairs):
        ranks = [rank for pair in members for rank in pair]
        assert ranks
        assert len(set(ranks)) == len(ranks)


def test_few_pairs_are_serial_and_many_take_few_rounds():
    assert all(len(members) == 1 for members in pair_rounds(8, "all"))
    assert len(pair_rounds(8, "all")) == MAX_SERIAL
    assert len(pair_rounds(9, "all")) == 9
    assert len(pair_rounds(64, "all")) == 63
    assert len(pair_rounds(64, "neighbours")) == 2


@given(st.integers(2, 40), st.integers(1, 40), st.sampled_from(["all", "neighbours"]))
def test_at_once_bounds_the_pairs_of_a_round(size, at_once, pairs):
    rounds = pair_rounds(size, pairs, at_once)
    assert max(map(len, rounds)) <= at_once
    assert sorted(pair for members in rounds for pair in members) == sorted(
        pair for members in pair_rounds(size, pairs) for pair in members
    )


def test_all_pairs_of_a_thousand_ranks_take_fewer_rounds_than_ranks():
    rounds = pair_rounds(1000, "all", 500)
    assert len(rounds) == 999
    assert {len(members) for members in rounds} == {500}


@pytest.mark.parametrize("count", [1, 8, 1 << 20, (1 << 20) + 7])
def test_bytes_follow_from_the_seed(count):
    data = random_bytes(5, count)
    assert len(data) == count
    assert data == random_bytes(5, count)
    if count > 1:
        assert data != random_bytes(6, count)


def test_poison_differs_everywhere():
    expected = random_bytes(1, 1000)
    wrong = invert_bytes(expected)
    assert len(wrong) == 1000
    assert all(a != b for a, b in zip(wrong, expected, strict=True))


@pytest.mark.parametrize("index", [0, 17, (1 << 20) - 1, 1 << 20, (1 << 20) + 5])
def test_detects_one_wrong_bit(index):
    expected = random_bytes(2, (1 << 20) + 6)
    received = bytearray(expected)
    assert compare_bytes(bytes(received), expected).error == 0.0
    received[index] ^= 1
    worst = compare_bytes(bytes(received), expected)
    assert worst.error == 1.0
    assert worst.detail.startswith(f"byte {index} is ")
