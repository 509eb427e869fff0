"""The ranks that a judged case names as slow."""

import random
from dataclasses import replace

import pytest

from spbench.record.comparison import RankComparison, RankTime
from spbench.record.judge import blames_fault, judge
from spbench.record.noise import describe_case_noise
from spbench.record.stragglers import Straggler, find_stragglers
from unit.events import TIME, described, metric, rank_event, started, state_of

WAITED = metric("waited_ms", "ms", "none", part_of="time_ms", waits=True)
ONE_HOST = ["node01"] * 4


def case_of(times, hosts=None, waits=(), more=(), **changes):
    """A case that has these times on each rank, and these waits within them."""
    hosts = hosts or ["node01"] * len(times)
    changes = {"metrics": [TIME, WAITED], "checks": [], **changes}
    fields = {"phase": "timing", "done": 0, "total": len(times[0])}
    samples = [("time_ms", times), ("waited_ms", waits)]
    events = [
        *started(described(np=len(hosts), **changes), hosts=hosts),
        rank_event("progress", 0, **fields) | {"time": 2000.0},
        *(
            rank_event("samples", rank, metric=name, values=list(values))
            for name, series in samples
            for rank, values in enumerate(series)
        ),
        *more,
    ]
    return state_of(events).cases["a"]


def named(*args, **fields):
    return [slow.rank for slow in find_stragglers(case_of(*args, **fields))]


def alike(count=40, ms=10.0):
    return [ms] * count


def test_a_slow_rank_has_its_host_factor_and_beginning():
    slow = [*alike(20), *alike(20, 18.0)]
    case = case_of([alike(), alike(), slow], ["node01", "node01", "node02"])
    assert find_stragglers(case) == [
        Straggler(2, "node02", pytest.approx(1.8), pytest.approx(0.36), pytest.approx(2000.2))
    ]


def test_the_factor_of_a_rank_that_was_slow_throughout_is_its_skew():
    """Half the blocks are 1.5 times as slow, the others 4 times; views show one factor."""
    slow = [15.0, 15.0, 15.0, 40.0] * 10
    [straggler] = find_stragglers(case_of([alike(), alike(), slow]))
    assert straggler.ratio == pytest.approx(1.5)
    comparison = RankComparison(case_of([alike(), alike(), slow]).identity)
    times = {rank: RankTime(ms) for rank, ms in enumerate([10.0, 10.0, 15.0])}
    assert comparison.compare(times).ratios[2] == pytest.approx(straggler.ratio)


def test_the_slower_one_of_two_ranks_is_named():
    assert named([alike(ms=20.0), alike()]) == [0]


@pytest.mark.parametrize(("ratio", "ranks"), [(1.25, []), (1.35, [1])])
def test_a_rank_is_named_from_1_3_times_on(ratio, ranks):
    assert named([alike(), alike(ms=10.0 * ratio)]) == ranks


def test_a_rank_that_is_slow_for_a_moment_is_not_named():
    spikes = alike()
    spikes[10:16] = [500.0] * 6
    assert named([alike(), spikes]) == []


def test_a_rank_that_is_slow_in_some_blocks_only_is_not_named():
    now_and_then = [20.0 if index // 4 % 2 else 10.0 for index in range(40)]
    assert named([alike(), now_and_then]) == []


def test_few_or_short_iterations_name_nobody():
    assert named([alike(7), alike(7, 100.0)]) == []
    assert named([alike(40, 0.01), alike(40, 0.1)]) == []


def test_equal_ranks_with_noise_are_hardly_ever_named():
    drawn = random.Random(7)
    runs = [
        [[drawn.lognormvariate(2.0, 0.5) for _ in range(60)] for _ in range(2)] for _ in range(500)
    ]
    assert sum(bool(named(times)) for times in runs) <= 1


def test_the_cause_is_named_and_not_the_ranks_that_wait_for_it():
    times = [alike(ms=100.0)] * 4
    waits = [alike(ms=92.0), alike(ms=92.0), alike(ms=92.0), alike(ms=2.0)]
    case = case_of(times, waits=waits, measures="job")
    [slow] = find_stragglers(case)
    assert (slow.rank, slow.cause) == (3, True)
    assert slow.ratio == pytest.approx(10.0)
    assert case.skew() == pytest.approx(10.0)


def test_cause_and_waiting_are_not_separated_without_waits():
    [slow, other] = find_stragglers(
        case_of([alike(), alike(), alike(ms=30.0), alike(ms=31.0)], measures="job")
    )
    assert (slow.rank, other.rank, slow.cause, other.cause) == (3, 2, False, False)
    assert slow.message.endswith(", or waits for a slower rank")


def test_stages_of_a_pipeline_are_not_compared():
    places = [{"stage": 0}, {"stage": 1}]
    case = case_of([alike(), alike(ms=30.0)], places=places, measures="job")
    assert find_stragglers(case) == []
    assert case.skew() is None


def test_replicas_of_a_stage_are_compared():
    places = [{"stage": rank % 2, "replica": rank // 2} for rank in range(4)]
    times = [alike(), alike(ms=30.0), alike(ms=20.0), alike(ms=30.0)]
    assert named(times, places=places, measures="job") == [2]


def test_tiles_with_more_neighbours_have_more_work_of_their_own():
    strip = [{"tile": f"0,{rank}"} for rank in range(4)]
    waits = [[2.0] * 40] * 4
    inner = [alike(), alike(ms=20.0), alike(ms=20.0), alike()]
    assert named(inner, waits=waits, places=strip, measures="job") == []
    slow = [alike(), alike(ms=20.0), alike(ms=20.0), alike(ms=20.0)]
    assert named(slow, waits=waits, places=strip, measures="job") == [3]


def test_ranks_of_other_programs_are_not_compared():
    times = [alike(), alike(ms=30.0), alike()]
    assert named(times, params={"by_rank": {"1": ["server"]}}, measures="job") == []
    assert named(times, params={"by_rank": 1}, measures="job") == [1]  # the log may be anyone's


def test_links_are_not_compared():
    assert named([alike(), alike(ms=30.0)], measures="link") == []


def test_a_host_stands_for_its_ranks_if_all_are_slow():
    hosts = ["node01", "node01", "node01", "node02", "node02"]
    times = [alike(), alike(), alike(), alike(ms=20.0), alike(ms=22.0)]
    [slow] = find_stragglers(case_of(times, hosts))
    assert (slow.rank, slow.host) == (None, "node02")
    assert slow.ratio == pytest.approx(2.0)


def test_blocks_never_span_two_repeats():
    first = [rank_event("samples", rank, repeat=1, values=alike(20, 10.0)) for rank in (0, 1)]
    case = case_of([alike(20), alike(20, 30.0)], more=first, repeat=2)
    [slow] = find_stragglers(case)
    assert slow.rank == 1
    assert slow.seconds == pytest.approx(0.6)


def test_a_wrong_clock_leaves_the_time_of_day_out():
    slow = Straggler(1, "node01", 2.0, 90.0, since=1e300)
    assert slow.describe_span() == "for 1 min 30 s"


# What follows from a straggler


def judged_slow(factor, inject="slow=2", **changes):
    case = case_of([alike(), alike(ms=10.0 * factor)], inject=inject, **changes)
    return judge(case, stragglers=find_stragglers(case))


def test_a_planted_rank_that_is_named_is_noticed():
    verdict = judged_slow(2)
    assert verdict.status == "failed"
    assert verdict.reason == "planted fault noticed: rank 1 on node01 is slow"


def test_a_slow_rank_that_is_not_the_planted_one_is_not_noticed():
    assert judged_slow(0.5).reason == (
        "nothing noticed the planted fault slow=2; "
        "take more iterations, or set `expect: {skew: {max: 1.3}}` in the suite"
    )
    assert judged_slow(2, "corrupt-halo").reason == (
        "nothing noticed the planted fault corrupt-halo"
    )


def test_a_planted_rank_is_not_seen_where_ranks_wait_for_each_other_unmeasured():
    reason = judged_slow(1, measures="job").reason
    assert "does not measure how long ranks wait for each other" in reason
    assert "more iterations" not in reason


@pytest.mark.parametrize("ranks_a_host", [1, 4])
def test_a_planted_rank_that_is_out_of_line_with_many_is_noticed(ranks_a_host):
    times = [alike(6, 10.0 + rank / 100) for rank in range(15)] + [alike(6, 12.0)]
    hosts = [f"node{rank // ranks_a_host:02}" for rank in range(16)]
    case = case_of(times, hosts, inject="slow=1.2")
    assert find_stragglers(case) == []
    reason = judge(case).reason
    assert reason.startswith("planted fault noticed: ")
    assert reason.endswith(" is slow")


def test_a_planted_rank_that_is_compared_with_none_is_told_so():
    verdict = judged_slow(2, places=[{"stage": 0}, {"stage": 1}], measures="job")
    assert verdict.reason == (
        "nothing noticed the planted fault slow=2: no other rank does the work of rank 1 on node01"
    )


def test_a_planted_rank_that_was_slow_too_briefly_is_not_denied():
    case = case_of([alike(6), alike(6, ms=1550.0)], inject="slow")
    assert judge(case, stragglers=find_stragglers(case)).reason == (
        "planted fault slow not confirmed: rank 1 on node01 is 155x as slow as the median rank, "
        "but too briefly to be sure: take more iterations"
    )


def test_a_fault_below_the_factor_of_stragglers_is_not_to_be_noticed():
    case = case_of([alike(10, 100.0), alike(10, 120.0)], inject="slow=1.2")
    reason = judge(case, stragglers=find_stragglers(case)).reason
    assert reason == (
        "nothing noticed the planted fault slow=1.2: a rank is named from 1.3x on; set `expect: "
        "{skew: {max: 1.1}}` in the suite"
    )
    assert blames_fault(reason)
    assert not blames_fault("check halo failed on rank 0")
    assert not blames_fault(None)


def test_a_slight_fault_of_a_rank_without_its_like_has_no_advice_on_skew():
    places = [{"stage": 0}, {"stage": 1}]
    case = case_of([alike(10), alike(10)], inject="slow=1.2", places=places, measures="job")
    reason = judge(case, stragglers=find_stragglers(case)).reason
    assert reason.endswith(": no other rank does the work of rank 1 on node01")


def test_the_advice_says_how_many_iterations_show_a_slow_rank():
    params = {"iterations": 10}
    case = case_of([alike(10, 0.5), alike(10, 1.0)], inject="slow=2", params=params)
    reason = judge(case, stragglers=find_stragglers(case)).reason
    # Twice 20 ms at 1 ms an iteration.
    assert "too briefly to be sure" in reason
    assert "take more iterations (`--set iterations=40`)" in reason


def test_each_job_of_a_case_has_its_planted_rank():
    case = case_of([alike(), alike(ms=20.0), alike(), alike()], inject="slow", shares=[2, 2])
    verdict = judge(case, stragglers=find_stragglers(case))
    assert verdict.reason.startswith("planted fault noticed: rank 1")


def test_a_rank_that_waits_for_a_straggler_is_not_noisy():
    ends = [
        rank_event("case_end", rank, disturbed={"waited": share})
        for rank, share in enumerate((0.9, 0.0))
    ]
    case = case_of([alike(), alike(ms=20.0)], more=ends)
    for rank, part in case.measured.ranks.items():
        part.facts = replace(part.facts, cpus=(rank,))
    assert describe_case_noise(case) == (
        "rank 0 on node01 waited 90 % of its time for a core because other work used it"
    )
    case.verdict.stragglers = tuple(find_stragglers(case))
    assert describe_case_noise(case) is None


def test_ratios_are_those_of_whole_iterations():
    case = case_of([alike(), alike()])
    times = {0: RankTime(10.0, 2.0), 1: RankTime(18.0, 10.0)}
    assert RankComparison(case.identity).compare(times).ratios == {0: 1.0, 1: pytest.approx(1.8)}
