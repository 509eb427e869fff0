"""Messages on which ranks of a case are slow, and which ranks wait for them."""

from unittest.mock import Mock

import pytest

from spbench.record.comparison import RankComparison, RankTime
from spbench.record.messages import slowness
from spbench.record.messages.slowness import (
    LINKS,
    NONE_SLOW,
    NOT_COMPARED,
    TOO_SHORT,
    describe_slowness,
    find_culprit,
)
from spbench.record.stragglers import MIN_BLOCKS, can_judge_ranks, count_compared_samples
from support.sample_events import (
    TIME,
    build_state,
    case_judged,
    describe_case,
    describe_metric,
    make_started_run,
    rank_event,
)

WAIT = describe_metric("wait_ms", "ms", "lower", part_of="time_ms", waits=True)


SLOW = {"rank": 1, "host": "node1", "ratio": 2.4, "seconds": 6.0, "since": 1e9, "cause": True}


def build_case(count, samples=MIN_BLOCKS, end=(), time_ms=10.0, **changes):
    hosts = tuple(f"node{rank}" for rank in range(count))
    case = describe_case("a", count, metrics=[TIME, WAIT], **changes)
    times = [rank_event("samples", rank, values=[time_ms] * samples) for rank in range(count)]
    return build_state([*make_started_run(case, hosts=hosts), *times, *end]).cases["a"]


def compare(case, times):
    comparison = RankComparison(case.identity)
    return comparison, times, comparison.compare(times).ratios


def describe(case, times):
    comparison = RankComparison(case.identity)
    return describe_slowness(case, comparison, times, comparison.compare(times))


def make_times(*active_times, total=10.0):
    return {rank: RankTime(total, active) for rank, active in enumerate(active_times)}


def test_names_the_slow_rank_and_those_that_wait(messages):
    messages.check(describe(build_case(2), make_times(4.0, 9.9)))
    messages.check(describe(build_case(4), make_times(4.0, 4.1, 4.0, 9.9)))
    messages.check(describe(build_case(40), make_times(*[4.0] * 39, 9.9)))


def test_counts_several_slow_ranks(messages):
    messages.check(describe(build_case(5), make_times(4.0, 4.1, 4.0, 9.0, 9.9)))


def test_waits_are_left_out_if_not_measured(messages):
    times = {rank: RankTime(ms) for rank, ms in enumerate((4.0, 4.0, 9.9))}
    messages.check(describe(build_case(3), times))


def test_equal_ranks_are_not_slow():
    assert describe(build_case(2), make_times(4.0, 4.4)) == NONE_SLOW


@pytest.mark.parametrize(
    ("time_ms", "samples", "message"),
    [
        (10.0, MIN_BLOCKS, NONE_SLOW),
        (0.5, MIN_BLOCKS, f"the case is {TOO_SHORT}"),
        (10.0, MIN_BLOCKS - 1, f"the case is {TOO_SHORT}"),
    ],
)
def test_finished_case_is_too_short_by_the_rule_of_the_findings(time_ms, samples, message):
    end = [rank_event("case_end", rank) for rank in range(2)]
    case = build_case(2, samples, end=[*end, case_judged("a")], time_ms=time_ms)
    assert describe(case, make_times(time_ms, time_ms, total=time_ms)) == message
    assert can_judge_ranks(case) == (message == NONE_SLOW)


def test_stages_are_not_compared_with_each_other():
    stages = [{"stage": 0}, {"stage": 1}]
    assert describe(build_case(2, places=stages), make_times(4.0, 9.9)) == NOT_COMPARED


@pytest.mark.parametrize("times", [{}, {0: RankTime(4.0)}])
def test_few_times_have_no_message(times):
    assert describe(build_case(2), times) == ""


@pytest.mark.parametrize("active", [4.4, 9.9])
def test_slow_part_of_a_case_has_both_ratios(active, messages):
    judged = case_judged("a", stragglers=[{**SLOW, "seconds": 0.186}])
    messages.check(describe(build_case(2, end=[judged]), make_times(4.0, active)))


def test_culprit_is_the_only_slow_rank():
    case = build_case(4)

    def list_culprits(times):
        comparison, _, ratios = compare(case, times)
        return [find_culprit(case, comparison, times, ratios, rank) for rank in range(4)]

    assert list_culprits(make_times(4.0, 4.1, 4.0, 9.9)) == [3, 3, 3, None]
    assert list_culprits(make_times(4.0, 4.1, 9.0, 9.9)) == [None] * 4


@pytest.mark.parametrize("samples", [1, MIN_BLOCKS - 1])
def test_no_rank_is_slow_by_few_samples(samples, messages):
    case = build_case(2, samples)
    messages.check(describe(case, make_times(4.0, 9.9)))
    comparison, times, ratios = compare(case, make_times(4.0, 9.9))
    assert find_culprit(case, comparison, times, ratios, 0) is None


def test_no_rank_is_slow_within_a_time_slice(messages):
    messages.check(describe(build_case(2), make_times(0.4, 0.99, total=1.0)))


def test_no_rank_waits_for_one_that_is_slow_only_within_a_time_slice():
    case = build_case(4)
    comparison, times, ratios = compare(case, make_times(0.4, 0.41, 0.4, 0.99, total=1.0))
    assert find_culprit(case, comparison, times, ratios, 0) is None


def test_counts_the_samples_of_ranks_once(monkeypatch):
    count = Mock(wraps=count_compared_samples)
    monkeypatch.setattr(slowness, "count_compared_samples", count)
    describe(build_case(8), make_times(*[4.0] * 5, 9.0, 9.0, 9.9))
    assert count.call_count == 1


@pytest.mark.parametrize("stragglers", [[], [{**SLOW, "rank": 0, "host": "node0"}]])
def test_only_stragglers_of_a_finished_case_are_slow(stragglers, messages):
    end = [rank_event("case_end", rank) for rank in range(2)]
    case = build_case(2, end=[*end, case_judged("a", stragglers=stragglers)])
    messages.check(describe(case, make_times(4.0, 9.9)))


def test_straggler_of_a_finished_case_is_slow():
    end = [rank_event("case_end", rank) for rank in range(2)]
    case = build_case(2, end=[*end, case_judged("a", stragglers=[SLOW])])
    assert describe(case, make_times(4.0, 9.9)).startswith("rank 1 on node1 takes 2.40x the time")


def test_ranks_of_links_are_not_compared():
    assert describe(build_case(2, measures="link"), make_times(4.0, 9.9)) == LINKS
