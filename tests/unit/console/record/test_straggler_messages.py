"""Messages on stragglers: one per rank or host over all cases."""

import pytest

from spbench.record.comparison import RankTime
from spbench.record.messages.stragglers import Lag, describe_lags, find_lags
from spbench.record.stragglers import Straggler, find_waiting_ranks
from support.sample_events import build_state, describe_case, make_started_run, make_timed_run

HOSTS = ("node01", "node01", "node02", "node02")


def build_case(name="a", hosts=HOSTS, **changes):
    return build_state(
        make_started_run(describe_case(name, len(hosts), **changes), hosts=hosts)
    ).cases[name]


def build_straggler(rank=3, ratio=2.0, host="node02", cause=True):
    return Straggler(rank, host, ratio, 5.0, 1000.0, cause)


def test_merges_cases_of_a_slow_rank_with_the_largest_ratio(messages):
    lags = [
        Lag(build_straggler(ratio=ratio), build_case(name))
        for name, ratio in zip("abcd", (2, 9, 3, 4), strict=True)
    ]
    messages.check(describe_lags(lags))
    [message] = describe_lags(lags[:3])
    messages.check(message)
    [message] = describe_lags(lags[:1])
    messages.check(message)


def test_slow_part_of_a_case_has_both_ratios(messages):
    events = make_timed_run([[10.0] * 20, [10.0] * 9 + [15.0] * 3 + [30.0] * 8], HOSTS[:2])
    case = build_state(events).cases["a"]
    slow = Straggler(1, "node01", 3.0, 0.3, 1000.0, cause=False)
    [message] = describe_lags(find_lags(case, [slow]))
    messages.check(message)
    throughout = Straggler(1, "node01", case.compute_rank_skews()[1], 0.3, 1000.0)
    assert find_lags(case, [throughout])[0].case_ratio is None


def test_reports_each_rank_slowest_first():
    lags = [Lag(build_straggler(1, 2.0), build_case()), Lag(build_straggler(2, 8.0), build_case())]
    assert [message[:6] for message in describe_lags(lags)] == ["rank 2", "rank 1"]


def test_counts_stragglers_above_the_maximum():
    lags = [Lag(build_straggler(rank, 20.0 - rank), build_case()) for rank in range(5)]
    messages = describe_lags(lags, max_messages=3)
    assert len(messages) == 4
    assert messages[-1].startswith("2 more stragglers: ")
    assert describe_lags(lags, max_messages=4)[-1].startswith("1 more straggler: ")


def test_remedy_on_a_single_host_names_no_host():
    [message] = describe_lags([Lag(build_straggler(host="vm"), build_case(hosts=("vm",) * 4))])
    assert message.endswith("; check its host with: spbench doctor")


@pytest.mark.parametrize("straggler", [build_straggler(), build_straggler(None)])
def test_injected_straggler_is_marked_and_has_no_remedy(straggler):
    [message] = describe_lags([Lag(straggler, build_case(inject="slow=9"))])
    assert message.endswith("; planted by --inject slow=9")
    assert "check" not in message


def test_straggler_other_than_the_injected_one_has_a_remedy(messages):
    [message] = describe_lags([Lag(build_straggler(2), build_case(inject="slow=9"))])
    assert "planted" not in message
    messages.check(message)


def times_with_waits(*waits, total=100.0):
    return {rank: RankTime(total, total - wait) for rank, wait in enumerate(waits)}


@pytest.mark.parametrize(
    ("waits", "clause"),
    [
        ((2, 2, 60, 1), " (rank 2 waits for it)"),
        ((2, 70, 60, 1), " (ranks 1 and 2 wait for it)"),
        ((50, 70, 60, 1), " (all other ranks wait for it)"),
        ((20, 20, 20, 1), ""),  # below the threshold
    ],
)
def test_reports_ranks_that_wait_for_a_straggler(waits, clause):
    lags = find_lags(build_case(measures="job"), [build_straggler()], times_with_waits(*waits))
    assert f" for 5.0 s so far{clause}; check " in describe_lags(lags)[0]


def test_several_stragglers_have_no_waiting_ranks():
    lags = find_lags(
        build_case(measures="job"),
        [build_straggler(), build_straggler(2)],
        times_with_waits(60, 60, 2, 1),
    )
    assert all("wait" not in message for message in describe_lags(lags))


def test_stages_of_a_pipeline_are_not_waiting_ranks():
    pipeline = build_case(measures="job", places=[{"stage": rank} for rank in range(4)])
    assert find_waiting_ranks(pipeline.identity, times_with_waits(50, 50, 50, 1)) == []
    assert find_waiting_ranks(build_case().identity, times_with_waits(50, 50, 50, 1)) == [0, 1, 2]


def test_uncertain_straggler_may_wait_for_a_slower_rank(messages):
    [message] = describe_lags([Lag(build_straggler(cause=False), build_case())])
    messages.check(message)
