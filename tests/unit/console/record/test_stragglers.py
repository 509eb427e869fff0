"""Stragglers of a judged case, and their effect on its verdict."""

import random
from dataclasses import replace

import pytest

from spbench.record.comparison import RankComparison, RankTime
from spbench.record.judge import judge
from spbench.record.noise import describe_case_noise
from spbench.record.planted_faults import blames_fault
from spbench.record.stragglers import Straggler, find_stragglers, list_planted_ranks
from support.sample_events import (
    TIME,
    build_state,
    describe_case,
    describe_metric,
    make_started_run,
    rank_event,
)

WAITED = describe_metric("waited_ms", "ms", "none", part_of="time_ms", waits=True)
ONE_HOST = ["node01"] * 4


def build_case(times, hosts=None, waits=(), more=(), **changes):
    """Return a case with times in ms per rank, and their parts that are waits."""
    hosts = hosts or ["node01"] * len(times)
    changes = {"metrics": [TIME, WAITED], "checks": [], **changes}
    fields = {"phase": "timing", "done": 0, "total": len(times[0])}
    samples = [("time_ms", times), ("waited_ms", waits)]
    events = [
        *make_started_run(describe_case(np=len(hosts), **changes), hosts=hosts),
        rank_event("progress", 0, **fields) | {"time": 2000.0},
        *(
            rank_event("samples", rank, metric=name, values=list(values))
            for name, series in samples
            for rank, values in enumerate(series)
        ),
        *more,
    ]
    return build_state(events).cases["a"]


def find_slow_ranks(*args, **fields):
    return [slow.rank for slow in find_stragglers(build_case(*args, **fields))]


def equal_times(count=40, ms=10.0):
    return [ms] * count


def test_straggler_has_host_ratio_duration_and_start():
    slow = [*equal_times(20), *equal_times(20, 18.0)]
    case = build_case([equal_times(), equal_times(), slow], ["node01", "node01", "node02"])
    assert find_stragglers(case) == [
        Straggler(2, "node02", pytest.approx(1.8), pytest.approx(0.36), pytest.approx(2000.2))
    ]


def test_ratio_of_a_constantly_slow_rank_is_its_skew():
    """Most iterations are 1.5 times as slow, the others 4 times; views show one ratio."""
    slow = [15.0, 15.0, 15.0, 40.0] * 10
    [straggler] = find_stragglers(build_case([equal_times(), equal_times(), slow]))
    assert straggler.ratio == pytest.approx(1.5)
    comparison = RankComparison(build_case([equal_times(), equal_times(), slow]).identity)
    times = {rank: RankTime(ms) for rank, ms in enumerate([10.0, 10.0, 15.0])}
    assert comparison.compare(times).ratios[2] == pytest.approx(straggler.ratio)


def test_finds_the_slower_of_two_ranks():
    assert find_slow_ranks([equal_times(ms=20.0), equal_times()]) == [0]


@pytest.mark.parametrize(("ratio", "ranks"), [(1.25, []), (1.35, [1])])
def test_finds_rank_above_1_3_times_the_median(ratio, ranks):
    assert find_slow_ranks([equal_times(), equal_times(ms=10.0 * ratio)]) == ranks


def test_ignores_a_rank_that_is_slow_for_a_moment():
    spikes = equal_times()
    spikes[10:16] = [500.0] * 6
    assert find_slow_ranks([equal_times(), spikes]) == []


def test_ignores_a_rank_that_is_slow_in_some_blocks():
    alternating = [20.0 if index // 4 % 2 else 10.0 for index in range(40)]
    assert find_slow_ranks([equal_times(), alternating]) == []


def test_ignores_few_or_short_iterations():
    assert find_slow_ranks([equal_times(7), equal_times(7, 100.0)]) == []
    assert find_slow_ranks([equal_times(40, 0.01), equal_times(40, 0.1)]) == []


def test_noise_of_equal_ranks_rarely_gives_a_straggler():
    random_source = random.Random(7)
    runs = [
        [[random_source.lognormvariate(2.0, 0.5) for _ in range(60)] for _ in range(2)]
        for _ in range(500)
    ]
    assert sum(bool(find_slow_ranks(times)) for times in runs) <= 1


def test_finds_the_cause_and_not_the_waiting_ranks():
    times = [equal_times(ms=100.0)] * 4
    waits = [equal_times(ms=92.0), equal_times(ms=92.0), equal_times(ms=92.0), equal_times(ms=2.0)]
    case = build_case(times, waits=waits, measures="job")
    [slow] = find_stragglers(case)
    assert (slow.rank, slow.cause) == (3, True)
    assert slow.ratio == pytest.approx(10.0)
    assert case.skew() == pytest.approx(10.0)


def test_cause_is_uncertain_without_measured_waits():
    times = [equal_times(), equal_times(), equal_times(ms=30.0), equal_times(ms=31.0)]
    case = build_case(times, measures="job")
    [slow, other] = find_stragglers(case)
    assert (slow.rank, other.rank, slow.cause, other.cause) == (3, 2, False, False)
    assert slow.describe(case).endswith(", or waits for a slower rank")


def test_does_not_compare_stages_of_a_pipeline():
    coordinates = [{"stage": 0}, {"stage": 1}]
    case = build_case([equal_times(), equal_times(ms=30.0)], places=coordinates, measures="job")
    assert find_stragglers(case) == []
    assert case.skew() is None


def test_compares_replicas_of_a_stage():
    coordinates = [{"stage": rank % 2, "replica": rank // 2} for rank in range(4)]
    times = [equal_times(), equal_times(ms=30.0), equal_times(ms=20.0), equal_times(ms=30.0)]
    assert find_slow_ranks(times, places=coordinates, measures="job") == [2]


def test_compares_only_tiles_with_the_same_number_of_neighbors():
    strip = [{"tile": f"0,{rank}"} for rank in range(4)]
    waits = [[2.0] * 40] * 4
    inner = [equal_times(), equal_times(ms=20.0), equal_times(ms=20.0), equal_times()]
    assert find_slow_ranks(inner, waits=waits, places=strip, measures="job") == []
    slow = [equal_times(), equal_times(ms=20.0), equal_times(ms=20.0), equal_times(ms=20.0)]
    assert find_slow_ranks(slow, waits=waits, places=strip, measures="job") == [3]


def test_does_not_compare_ranks_of_different_programs():
    times = [equal_times(), equal_times(ms=30.0), equal_times()]
    assert find_slow_ranks(times, params={"by_rank": {"1": ["server"]}}, measures="job") == []
    assert find_slow_ranks(times, params={"by_rank": 1}, measures="job") == [
        1
    ]  # an invalid value in a log


def test_does_not_compare_ranks_of_links():
    assert find_slow_ranks([equal_times(), equal_times(ms=30.0)], measures="link") == []


def test_reports_host_if_all_its_ranks_are_slow():
    hosts = ["node01", "node01", "node01", "node02", "node02"]
    times = [
        equal_times(),
        equal_times(),
        equal_times(),
        equal_times(ms=20.0),
        equal_times(ms=22.0),
    ]
    [slow] = find_stragglers(build_case(times, hosts))
    assert (slow.rank, slow.host) == (None, "node02")
    assert slow.ratio == pytest.approx(2.0)


def test_blocks_do_not_span_repeats():
    second_repeat = [
        rank_event("samples", rank, repeat=1, values=equal_times(20, 10.0)) for rank in (0, 1)
    ]
    case = build_case([equal_times(20), equal_times(20, 30.0)], more=second_repeat, repeat=2)
    [slow] = find_stragglers(case)
    assert slow.rank == 1
    assert slow.seconds == pytest.approx(0.6)


def test_invalid_time_omits_the_time_of_day(messages):
    slow = Straggler(1, "node01", 2.0, 90.0, since=1e300)
    messages.check(slow.describe_span())


# Verdicts


def judge_slow_case(factor, inject="slow=2", **changes):
    case = build_case([equal_times(), equal_times(ms=10.0 * factor)], inject=inject, **changes)
    return judge(case, stragglers=find_stragglers(case))


def test_straggler_on_the_injected_rank_detects_the_fault(messages):
    verdict = judge_slow_case(2)
    assert verdict.status == "failed"
    messages.check(verdict.reason)


def test_straggler_on_another_rank_does_not_detect_the_fault(messages):
    messages.check(judge_slow_case(0.5).reason)
    messages.check(judge_slow_case(2, "corrupt-halo").reason)


def test_unmeasured_waits_explain_an_undetected_fault(messages):
    reason = judge_slow_case(1, measures="job").reason
    messages.check(reason)
    assert "more iterations" not in reason


@pytest.mark.parametrize("ranks_per_host", [1, 4])
def test_outlier_on_the_injected_rank_detects_the_fault(ranks_per_host, messages):
    times = [equal_times(6, 10.0 + rank / 100) for rank in range(15)] + [equal_times(6, 12.0)]
    hosts = [f"node{rank // ranks_per_host:02}" for rank in range(16)]
    case = build_case(times, hosts, inject="slow=1.2")
    assert find_stragglers(case) == []
    reason = judge(case).reason
    messages.check(reason)
    assert reason.endswith(" is slow")


def test_reports_injected_rank_without_a_comparable_rank(messages):
    verdict = judge_slow_case(2, places=[{"stage": 0}, {"stage": 1}], measures="job")
    messages.check(verdict.reason)


def test_briefly_slow_injected_rank_is_not_confirmed(messages):
    case = build_case([equal_times(6), equal_times(6, ms=1550.0)], inject="slow")
    messages.check(judge(case, stragglers=find_stragglers(case)).reason)


def test_fault_below_the_threshold_advises_a_skew_limit(messages):
    case = build_case([equal_times(10, 100.0), equal_times(10, 120.0)], inject="slow=1.2")
    reason = judge(case, stragglers=find_stragglers(case)).reason
    messages.check(reason)
    assert blames_fault(reason)
    assert not blames_fault("check halo failed on rank 0")
    assert not blames_fault(None)


def test_no_skew_advice_without_a_comparable_rank():
    coordinates = [{"stage": 0}, {"stage": 1}]
    case = build_case(
        [equal_times(10), equal_times(10)], inject="slow=1.2", places=coordinates, measures="job"
    )
    reason = judge(case, stragglers=find_stragglers(case)).reason
    assert reason.endswith(": no other rank does the work of rank 1 on node01")


def test_advice_has_the_number_of_iterations(messages):
    params = {"iterations": 10}
    case = build_case([equal_times(10, 0.5), equal_times(10, 1.0)], inject="slow=2", params=params)
    reason = judge(case, stragglers=find_stragglers(case)).reason
    # Twice 20 ms at 1 ms per iteration.
    messages.check(reason)


def test_each_job_of_a_case_has_an_injected_rank(messages):
    case = build_case(
        [equal_times(), equal_times(ms=20.0), equal_times(), equal_times()],
        inject="slow",
        shares=[2, 2],
    )
    verdict = judge(case, stragglers=find_stragglers(case))
    messages.check(verdict.reason)


@pytest.mark.parametrize(
    ("fault", "shares", "ranks"),
    [
        ("slow,rank=0", [4], {0}),
        ("slow=2,rank=1", [2, 2], {1, 3}),
        ("slow,rank=2", [2, 2], set()),  # a launch on fewer hosts than planned
        ("kill,rank=0", [4], set()),
        ("slow,nonsense", [4], set()),  # a damaged record
    ],
)
def test_slow_rank_may_be_chosen(fault, shares, ranks):
    case = build_case([equal_times()] * 4, inject=fault, shares=shares)
    assert list_planted_ranks(case) == ranks


def test_straggler_on_the_chosen_rank_detects_the_fault():
    assert judge_slow_case(0.5, "slow=2,rank=0").reason == (
        "fault found, as planted: rank 0 on node01 is slow"
    )
    assert blames_fault(judge_slow_case(2, "slow=2,rank=0").reason)


def test_rank_that_waits_for_a_straggler_is_not_noisy(messages):
    ends = [
        rank_event("case_end", rank, disturbed={"waited": share})
        for rank, share in enumerate((0.9, 0.0))
    ]
    case = build_case([equal_times(), equal_times(ms=20.0)], more=ends)
    for rank, rank_state in case.measured.ranks.items():
        rank_state.facts = replace(rank_state.facts, cpus=(rank,))
    messages.check(describe_case_noise(case))
    case.execution.stragglers = tuple(find_stragglers(case))
    assert describe_case_noise(case) is None


def test_ratios_are_of_whole_iterations():
    case = build_case([equal_times(), equal_times()])
    times = {0: RankTime(10.0, 2.0), 1: RankTime(18.0, 10.0)}
    assert RankComparison(case.identity).compare(times).ratios == {0: 1.0, 1: pytest.approx(1.8)}
