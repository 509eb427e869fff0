import pytest

from spbench.record.findings import collect_findings, names_slow_part
from spbench.record.stragglers import find_stragglers
from unit.events import (
    TIME,
    described,
    judged,
    measured,
    metric,
    rank_event,
    started,
    state_of,
    timed,
)


def found(events):
    state = state_of(events)
    for case in state.cases.values():
        case.verdict.stragglers = tuple(find_stragglers(case))
    for job in state.jobs.values():
        job.ranks.clear()  # these ranks have all the same two
    return collect_findings(state)


ALIKE = [10.0, 10.2, 9.9, 10.1]
TWO_HOSTS = ["node01", "node01", "node02", "node02"]


def times(*values):
    return [[value] * 10 for value in values]


def test_a_slow_rank_is_named_with_its_host():
    assert found(timed(times(10, 10, 10, 20), TWO_HOSTS)) == [
        "rank 3 on node02 is 2.00x as slow as the median rank in a for 200 ms; "
        "check its host with: spbench doctor --hosts node02"
    ]


def test_the_slow_one_of_two_ranks_is_named():
    [sentence] = found(timed(times(20, 10), ["node01", "node01"]))
    assert sentence.startswith("rank 0 on node01 is 2.00x as slow ")


def test_a_slow_host_is_named_rather_than_its_ranks():
    hosts = [f"node0{number}" for number in (1, 1, 2, 2, 3, 3)]
    assert found(timed(times(10, 10, 20, 21, 10, 10), hosts)) == [
        "host node02 is 2.00x as slow as the median rank in a for 200 ms; "
        "check its host with: spbench doctor --hosts node02"
    ]


def test_a_host_with_one_slow_rank_of_two_is_not_called_slow():
    [sentence] = found(timed(times(10, 10, 30, 10), TWO_HOSTS))
    assert sentence.startswith("rank 2 on node02 is 3.00x as slow ")


def test_one_rank_is_compared_with_none():
    assert found(timed(times(10), ["node01"])) == []


def test_ranks_that_are_alike_are_called_so():
    assert found(timed(times(*ALIKE), TWO_HOSTS)) == [
        "nothing is slow: of 2 hosts and 4 ranks, the slowest takes 1.02x as long as the median of "
        "its kind, in a (counted: quiet cases of compute and memory, timed for 20 ms or more; "
        "named from 1.3x on)"
    ]


@pytest.mark.parametrize(("slowest", "start"), [(12.9, "nothing is slow"), (13.1, "rank 3")])
def test_a_rank_is_named_from_1_3_times_on(slowest, start):
    assert found(timed(times(10, 10, 10, slowest), TWO_HOSTS))[0].startswith(start)


def pairs(*figures):
    """Figures of the links 0-1, 0-4 and 1-4 within node01, and 0-2, 0-3, 1-2 to node02."""
    places = {0: "node01", 1: "node01", 2: "node02", 3: "node02", 4: "node01"}
    links = [(0, 1), (0, 4), (1, 4), (0, 2), (0, 3), (1, 2)]
    return {
        ((a, places[a]), (b, places[b])): figure
        for (a, b), figure in zip(links, figures, strict=True)
    }


LATENCY = pairs(0.5, 0.5, 0.5, 2.0, 2.0, 2.0)
BANDWIDTH = pairs(8.0, 8.0, 8.0, 1.0, 1.0, 1.0)


def test_links_are_compared_with_their_own_kind_only():
    assert found(measured(LATENCY, BANDWIDTH)) == [
        "nothing is slow: of 2 hosts, 5 ranks and 6 links, the slowest takes 1.00x as long as the "
        "median of its kind, in links (counted: cases of links; named from 1.5x on)"
    ]


@pytest.mark.parametrize(
    ("figures", "parts"),
    [
        (
            {"latency": pairs(0.5, 0.5, 0.5, 2.0, 2.0, 8.0)},
            ("rank 1 on node01 to rank 2 on node02", "latency 8.00 us, median 2.00 us"),
        ),
        (
            {"bandwidth": pairs(8.0, 8.0, 8.0, 0.25, 1.0, 1.0)},
            ("rank 0 on node01 to rank 2 on node02", "bandwidth 250 MB/s, median 1.00 GB/s"),
        ),
        (
            {"latency": pairs(0.5, 1.5, 0.5, 2.0, 2.0, 2.0)},
            ("rank 0 on node01 to rank 4 on node01", "latency 1.50 us, median 500 ns"),
        ),
        (
            {"bandwidth": pairs(8.0, 8.0, 2.0, 1.0, 1.0, 1.0)},
            ("rank 1 on node01 to rank 4 on node01", "bandwidth 2.00 GB/s, median 8.00 GB/s"),
        ),
    ],
    ids=[
        "latency between hosts",
        "bandwidth between hosts",
        "latency within a host",
        "bandwidth within a host",
    ],
)
def test_a_slow_link_is_named_with_both_ends(figures, parts):
    [sentence] = found(measured(**{"latency": LATENCY, "bandwidth": BANDWIDTH} | figures))
    link, values = parts
    assert sentence.startswith(f"link from {link} is ")
    assert f"x as slow as the median link in links ({values}); check " in sentence


@pytest.mark.parametrize(("slowest", "start"), [(2.9, "nothing is slow"), (3.1, "link from")])
def test_a_link_is_named_from_1_5_times_on(slowest, start):
    latency = pairs(0.5, 0.5, 0.5, 2.0, 2.0, slowest)
    assert found(measured(latency, BANDWIDTH))[0].startswith(start)


def test_a_link_that_is_the_only_one_of_its_kind_is_compared_with_none():
    only = {((0, "node01"), (1, "node02")): 50.0}
    assert found(measured(only, only)) == []


def test_a_link_is_not_compared_with_its_own_repeats():
    only = {((0, "node01"), (1, "node02")): 0.5}
    *events, verdict = measured(only, {})
    [slower] = [
        event | {"value": 5.0, "repeat": 1} for event in events if event["event"] == "metric"
    ]
    assert found([*events, slower, verdict]) == []


def test_links_are_compared_by_the_medians_of_their_repeats():
    *events, verdict = measured(LATENCY, {})
    later = [
        event | {"repeat": repeat}
        for event in events
        for repeat in (1, 2)
        if event["event"] == "metric"
    ]
    outlier = later[0] | {"value": 50.0}
    [sentence] = found([*events, outlier, *later[1:], verdict])
    assert sentence.startswith("nothing is slow: of 2 hosts, 5 ranks and 6 links")


def test_the_slowest_of_ranks_and_links_is_the_one_that_is_told():
    cases = [described("a", 4), described("links", 4, measures="link")]
    links = measured(pairs(0.5, 0.5, 0.5, 20.0, 2.0, 2.0), BANDWIDTH)
    slow_link = [event for event in links if event["event"] == "metric"]
    slow_rank = [
        rank_event("samples", rank, values=[value]) for rank, value in enumerate([1, 1, 1, 2.0])
    ]
    starts = [rank_event("case_start", rank, case="links") for rank in range(len(TWO_HOSTS))]
    events = [*started(*cases, hosts=TWO_HOSTS), *slow_rank, *starts, *slow_link]
    [sentence] = found([*events, judged("a"), judged("links")])
    assert sentence.startswith("link from rank 0 on node01 to rank 2 on node02 is 10.0x as slow")


def test_a_slow_link_is_named_next_to_a_slow_rank_of_another_case():
    cases = [described("a", 4), described("links", 4, measures="link")]
    links = measured(pairs(0.5, 0.5, 0.5, 20.0, 2.0, 2.0), BANDWIDTH)
    slow_link = [event for event in links if event["event"] == "metric"]
    slow_rank = [
        rank_event("samples", rank, values=[value] * 10)
        for rank, value in enumerate([10.0, 10.0, 10.0, 20.0])
    ]
    starts = [rank_event("case_start", rank, case="links") for rank in range(len(TWO_HOSTS))]
    events = [*started(*cases, hosts=TWO_HOSTS), *slow_rank, *starts, *slow_link]
    sentences = found([*events, judged("a"), judged("links")])
    assert [sentence.split(" is ")[0] for sentence in sentences] == [
        "rank 3 on node02",
        "link from rank 0 on node01 to rank 2 on node02",
    ]


@pytest.mark.parametrize("status", ["error", "timeout", "cancelled", "skipped"])
def test_a_case_that_did_not_end_says_nothing(status):
    events = timed(times(*ALIKE), TWO_HOSTS)
    assert found([*events, judged("a", status, "why")]) == []


def test_a_case_that_timed_out_still_has_its_slow_rank():
    events = timed(times(10, 10, 10, 20), TWO_HOSTS)
    [sentence] = found([*events, judged("a", "timeout", "why")])
    assert sentence.startswith("rank 3 on node02 is 2.00x")


def test_a_rank_that_was_slow_for_a_moment_is_not_named():
    moment = [[*[10.0] * 6, value, *[10.0] * 3] for value in (10.0, 10.0, 10.0, 900.0)]
    [sentence] = found(timed(moment, TWO_HOSTS))
    assert sentence.startswith("nothing is slow")
    assert sentence.endswith(
        "; but on average rank 3 on node02 takes 9.90x in a: something interrupted it"
    )


def test_cases_that_are_noisy_or_short_do_not_show_that_nothing_is_slow():
    [sentence] = found(timed([[value] * 10 for value in (1.0, 1.0)], ["node01", "node01"]))
    assert sentence == (
        "a is too short to tell: a slow rank takes 1.3x as long as the median rank for 20 ms and "
        "40 % of the iterations in a row; take more iterations"
    )
    *events, end, verdict = timed(times(*ALIKE), TWO_HOSTS)
    noisy = rank_event("case_end", 0, case="a", disturbed={"waited": 0.6})
    assert not any("nothing" in sentence for sentence in found([*events, noisy, end, verdict]))


def test_a_rank_that_lags_too_briefly_may_be_slow():
    brief = [[value] * 10 for value in (1.0, 1.0, 1.0, 1.5)]
    [sentence] = found(timed(brief, TWO_HOSTS))
    assert sentence.startswith(
        "rank 3 on node02 takes 1.50x as long as the median rank in a, but not for 20 ms and 40 % "
    )
    assert not names_slow_part(sentence)


def whole_job(**milliseconds):
    """Judged cases of four equal ranks that measure their waits, by the time of ten iterations."""
    waited = metric("waited_ms", "ms", "none", part_of="time_ms", waits=True)
    cases = [described(name, 4, measures="job", metrics=[TIME, waited]) for name in milliseconds]
    events = started(*cases, hosts=TWO_HOSTS)
    for name, time_ms in milliseconds.items():
        for rank in range(4):
            at = {"case": name}
            events.append(rank_event("case_start", rank, **at))
            events.append(rank_event("samples", rank, **at, values=[time_ms] * 10))
            waits = {"metric": "waited_ms", "values": [0.1] * 10}
            events.append(rank_event("samples", rank, **at, **waits))
        events.append(judged(name))
    return events


SLOW = "1.3x as long as the median rank for 20 ms and 40 % of the iterations in a row"


def test_cases_of_a_whole_job_say_that_no_rank_lagged():
    assert found(whole_job(a=10.0)) == [
        "no rank is slow: in 1 case, none takes 1.3x as long as the median rank"
    ]
    assert found(timed(times(*ALIKE), TWO_HOSTS, measures="job")) == []  # waits are not known


def test_cases_that_are_too_short_are_counted():
    advice = "take more iterations"
    assert found(whole_job(a=0.5)) == [
        f"a is too short to tell: a slow rank takes {SLOW}; {advice}"
    ]
    assert found(whole_job(a=0.5, b=0.6, c=10.0)) == [
        "no rank is slow in 1 of 3 cases; 2 cases are too short to tell: a slow rank takes "
        f"{SLOW}; {advice}, as for b"
    ]


def test_a_run_with_a_planted_slow_rank_does_not_say_that_nothing_is_slow():
    case = described("a", 2, inject="slow=1.1")
    hosts = ["node01", "node01"]
    samples = [rank_event("samples", rank, case="a", values=[10.0] * 10) for rank in range(2)]
    assert found([*started(case, hosts=hosts), *samples, judged("a", "failed", "unseen")]) == []


def test_a_failed_case_still_has_its_times():
    events = timed(times(10, 10, 10, 20), TWO_HOSTS)
    assert "rank 3" in found([*events, judged("a", "failed", "why")])[0]


def test_links_without_a_figure_are_left_out():
    assert found(measured(LATENCY, pairs(8.0, 8.0, 8.0, None, 0.0, 1.0)))[0].startswith(
        "nothing is slow"
    )


def test_times_of_nothing_are_compared_with_none():
    assert found(timed(times(0.0, 0.0), ["node01", "node01"])) == []


def with_stolen_time(events, share):
    """The findings of a run with a hypervisor that took a share of the ranks' time."""
    state = state_of(events)
    for case in state.cases.values():
        case.verdict.stragglers = tuple(find_stragglers(case))
        for part in case.measured.ranks.values():
            part.disturbed = {"stolen": share}
    for job in state.jobs.values():
        job.ranks.clear()
    return collect_findings(state)


@pytest.mark.parametrize(
    ("slow_ms", "share", "named"),
    [(14.0, 0.0, True), (14.0, 0.3, False), (20.0, 0.3, True)],
    ids=["quiet", "noisy and slightly slow", "noisy and twice as slow"],
)
def test_a_rank_that_noise_made_slightly_slow_is_not_named(slow_ms, share, named):
    sentences = with_stolen_time(timed(times(10, 10, 10, slow_ms), TWO_HOSTS), share)
    assert any(sentence.startswith("rank 3 on node02") for sentence in sentences) is named
