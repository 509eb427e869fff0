"""Sentences on stragglers: one per rank or host over all cases."""

import pytest

from spbench.record.comparison import RankTime
from spbench.record.messages.stragglers import Lag, describe_lags, find_lags
from spbench.record.stragglers import Straggler, find_waiting_ranks
from unit.events import described, started, state_of

HOSTS = ("node01", "node01", "node02", "node02")


def case_of(name="a", hosts=HOSTS, **changes):
    return state_of(started(described(name, len(hosts), **changes), hosts=hosts)).cases[name]


def slow(rank=3, ratio=2.0, host="node02", cause=True):
    return Straggler(rank, host, ratio, 5.0, 1000.0, cause)


def test_a_rank_that_is_slow_in_several_cases_is_one_sentence_with_the_largest_factor():
    lags = [
        Lag(slow(ratio=ratio), case_of(name))
        for name, ratio in zip("abcd", (2, 9, 3, 4), strict=True)
    ]
    assert describe_lags(lags) == [
        "rank 3 on node02 is up to 9.00x as slow as the median rank in 4 cases: a, b and 2 more; "
        "check its host with: spbench doctor --hosts node02"
    ]
    [sentence] = describe_lags(lags[:3])
    assert " in 3 cases: a, b and c; " in sentence
    [sentence] = describe_lags(lags[:1])
    assert sentence.startswith("rank 3 on node02 is 2.00x as slow as the median rank in a for 5.0")


def test_each_rank_has_its_sentence_the_slowest_first():
    lags = [Lag(slow(1, 2.0), case_of()), Lag(slow(2, 8.0), case_of())]
    assert [sentence[:6] for sentence in describe_lags(lags)] == ["rank 2", "rank 1"]


def test_very_many_stragglers_are_counted():
    lags = [Lag(slow(rank, 20.0 - rank), case_of()) for rank in range(5)]
    sentences = describe_lags(lags, max_messages=3)
    assert len(sentences) == 4
    assert sentences[-1].startswith("2 more stragglers: ")
    assert describe_lags(lags, max_messages=4)[-1].startswith("1 more straggler: ")


def test_on_one_host_the_next_step_names_none():
    [sentence] = describe_lags([Lag(slow(host="vm"), case_of(hosts=("vm",) * 4))])
    assert sentence.endswith("; check its host with: spbench doctor")


@pytest.mark.parametrize("straggler", [slow(), slow(None)])
def test_a_planted_straggler_is_named_as_such_and_needs_no_step(straggler):
    [sentence] = describe_lags([Lag(straggler, case_of(inject="slow=9"))])
    assert sentence.endswith("; planted by --inject slow=9")
    assert "check" not in sentence


def test_a_straggler_next_to_a_planted_one_is_to_be_checked():
    [sentence] = describe_lags([Lag(slow(2), case_of(inject="slow=9"))])
    assert "planted" not in sentence
    assert "check its host" in sentence


def times(*waits, whole=100.0):
    return {rank: RankTime(whole, whole - wait) for rank, wait in enumerate(waits)}


@pytest.mark.parametrize(
    ("waits", "clause"),
    [
        ((2, 2, 60, 1), " (rank 2 waits for it)"),
        ((2, 70, 60, 1), " (ranks 1 and 2 wait for it)"),
        ((50, 70, 60, 1), " (all other ranks wait for it)"),
        ((20, 20, 20, 1), ""),  # not long enough to matter
    ],
)
def test_ranks_that_wait_for_a_straggler_are_named(waits, clause):
    lags = find_lags(case_of(measures="job"), [slow()], times(*waits))
    assert f" for 5.0 s{clause}; check " in describe_lags(lags)[0]


def test_it_is_not_said_who_waits_for_which_of_several_stragglers():
    lags = find_lags(case_of(measures="job"), [slow(), slow(2)], times(60, 60, 2, 1))
    assert all("wait" not in sentence for sentence in describe_lags(lags))


def test_ranks_of_a_pipeline_wait_for_each_other_without_a_straggler():
    uneven = case_of(measures="job", places=[{"stage": rank} for rank in range(4)])
    assert find_waiting_ranks(uneven.identity, times(50, 50, 50, 1)) == []
    assert find_waiting_ranks(case_of().identity, times(50, 50, 50, 1)) == [0, 1, 2]


def test_a_rank_that_may_only_wait_is_doubted():
    [sentence] = describe_lags([Lag(slow(cause=False), case_of())])
    assert "(unless it waits for a slower rank, which is not measured)" in sentence
