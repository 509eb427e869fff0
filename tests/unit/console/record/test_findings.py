"""Findings of a run: slow ranks, hosts and links."""

import pytest

from spbench.record.findings import collect_findings, names_slow_part
from spbench.record.stragglers import find_stragglers
from support.sample_events import (
    TIME,
    build_state,
    case_judged,
    describe_case,
    describe_metric,
    make_links_run,
    make_started_run,
    make_timed_run,
    rank_event,
)


def judge_and_collect(events):
    state = build_state(events)
    for case in state.cases.values():
        case.execution.stragglers = tuple(find_stragglers(case))
    for job in state.jobs.values():
        job.ranks.clear()  # all these ranks would share the same two cores
    return collect_findings(state)


ALIKE = [10.0, 10.2, 9.9, 10.1]
TWO_HOSTS = ["node01", "node01", "node02", "node02"]


def constant_times(*values):
    return [[value] * 10 for value in values]


def test_reports_slow_rank_with_its_host():
    assert judge_and_collect(make_timed_run(constant_times(10, 10, 10, 20), TWO_HOSTS)) == [
        "rank 3 on node02 takes 2.00x the time of the median rank in a for 200 ms; "
        "check its host with: spbench doctor --hosts node02"
    ]


def test_reports_the_slower_of_two_ranks(messages):
    [finding] = judge_and_collect(make_timed_run(constant_times(20, 10), ["node01", "node01"]))
    messages.check(finding)


def test_reports_slow_host_instead_of_its_ranks():
    hosts = [f"node0{number}" for number in (1, 1, 2, 2, 3, 3)]
    assert judge_and_collect(make_timed_run(constant_times(10, 10, 20, 21, 10, 10), hosts)) == [
        "host node02 takes 2.00x the time of the median rank in a for 200 ms; "
        "check its host with: spbench doctor --hosts node02"
    ]


def test_host_with_one_slow_rank_of_two_is_not_slow(messages):
    [finding] = judge_and_collect(make_timed_run(constant_times(10, 10, 30, 10), TWO_HOSTS))
    messages.check(finding)


def test_single_rank_has_no_finding():
    assert judge_and_collect(make_timed_run(constant_times(10), ["node01"])) == []


def test_reports_that_similar_ranks_are_not_slow():
    assert judge_and_collect(make_timed_run(constant_times(*ALIKE), TWO_HOSTS)) == [
        "no slow host or rank: the slowest is 1.02x the median (a)"
    ]


@pytest.mark.parametrize(("slowest", "start"), [(12.9, "no slow host or rank"), (13.1, "rank 3")])
def test_reports_rank_above_1_3_times_the_median(slowest, start):
    assert judge_and_collect(make_timed_run(constant_times(10, 10, 10, slowest), TWO_HOSTS))[
        0
    ].startswith(start)


def link_figures(*figures):
    """Return figures of links by pair of ranks with hosts.

    The order is 0-1, 0-4, 1-4 within node01, then 0-2, 0-3, 1-2 to node02.
    """
    hosts = {0: "node01", 1: "node01", 2: "node02", 3: "node02", 4: "node01"}
    links = [(0, 1), (0, 4), (1, 4), (0, 2), (0, 3), (1, 2)]
    return {
        ((a, hosts[a]), (b, hosts[b])): figure
        for (a, b), figure in zip(links, figures, strict=True)
    }


LATENCY = link_figures(0.5, 0.5, 0.5, 2.0, 2.0, 2.0)
BANDWIDTH = link_figures(8.0, 8.0, 8.0, 1.0, 1.0, 1.0)


def test_compares_links_only_with_links_of_the_same_kind():
    assert judge_and_collect(make_links_run(LATENCY, BANDWIDTH)) == [
        "no slow link: the slowest is 1.00x the median (links)"
    ]


@pytest.mark.parametrize(
    ("figures", "parts"),
    [
        (
            {"latency": link_figures(0.5, 0.5, 0.5, 2.0, 2.0, 8.0)},
            ("rank 1 on node01 to rank 2 on node02", "latency 8.00 us, median 2.00 us"),
        ),
        (
            {"bandwidth": link_figures(8.0, 8.0, 8.0, 0.25, 1.0, 1.0)},
            ("rank 0 on node01 to rank 2 on node02", "bandwidth 250 MB/s, median 1.00 GB/s"),
        ),
        (
            {"latency": link_figures(0.5, 1.5, 0.5, 2.0, 2.0, 2.0)},
            ("rank 0 on node01 to rank 4 on node01", "latency 1.50 us, median 500 ns"),
        ),
        (
            {"bandwidth": link_figures(8.0, 8.0, 2.0, 1.0, 1.0, 1.0)},
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
def test_reports_slow_link_with_both_ends(figures, parts):
    [finding] = judge_and_collect(
        make_links_run(**{"latency": LATENCY, "bandwidth": BANDWIDTH} | figures)
    )
    link, values = parts
    assert finding.startswith(f"link from {link} takes ")
    assert f"x the time of the median link in links ({values}); check " in finding


@pytest.mark.parametrize(("slowest", "start"), [(2.9, "no slow link"), (3.1, "link from")])
def test_reports_link_above_1_5_times_the_median(slowest, start):
    latency = link_figures(0.5, 0.5, 0.5, 2.0, 2.0, slowest)
    assert judge_and_collect(make_links_run(latency, BANDWIDTH))[0].startswith(start)


def test_only_link_of_its_kind_has_no_finding():
    only = {((0, "node01"), (1, "node02")): 50.0}
    assert judge_and_collect(make_links_run(only, only)) == []


def test_link_is_not_compared_with_its_own_repeats():
    only = {((0, "node01"), (1, "node02")): 0.5}
    *events, verdict = make_links_run(only, {})
    [slower] = [
        event | {"value": 5.0, "repeat": 1} for event in events if event["event"] == "metric"
    ]
    assert judge_and_collect([*events, slower, verdict]) == []


def test_compares_links_by_the_medians_of_their_repeats(messages):
    *events, verdict = make_links_run(LATENCY, {})
    later = [
        event | {"repeat": repeat}
        for event in events
        for repeat in (1, 2)
        if event["event"] == "metric"
    ]
    outlier = later[0] | {"value": 50.0}
    [finding] = judge_and_collect([*events, outlier, *later[1:], verdict])
    messages.check(finding)


def test_reports_only_the_link_if_the_rank_is_slow_too_briefly(messages):
    cases = [describe_case("a", 4), describe_case("links", 4, measures="link")]
    links = make_links_run(link_figures(0.5, 0.5, 0.5, 20.0, 2.0, 2.0), BANDWIDTH)
    slow_link = [event for event in links if event["event"] == "metric"]
    slow_rank = [
        rank_event("samples", rank, values=[value]) for rank, value in enumerate([1, 1, 1, 2.0])
    ]
    starts = [rank_event("case_start", rank, case="links") for rank in range(len(TWO_HOSTS))]
    events = [*make_started_run(*cases, hosts=TWO_HOSTS), *slow_rank, *starts, *slow_link]
    [finding] = judge_and_collect([*events, case_judged("a"), case_judged("links")])
    messages.check(finding)


def test_reports_slow_link_and_slow_rank_of_different_cases(messages):
    cases = [describe_case("a", 4), describe_case("links", 4, measures="link")]
    links = make_links_run(link_figures(0.5, 0.5, 0.5, 20.0, 2.0, 2.0), BANDWIDTH)
    slow_link = [event for event in links if event["event"] == "metric"]
    slow_rank = [
        rank_event("samples", rank, values=[value] * 10)
        for rank, value in enumerate([10.0, 10.0, 10.0, 20.0])
    ]
    starts = [rank_event("case_start", rank, case="links") for rank in range(len(TWO_HOSTS))]
    events = [*make_started_run(*cases, hosts=TWO_HOSTS), *slow_rank, *starts, *slow_link]
    findings = judge_and_collect([*events, case_judged("a"), case_judged("links")])
    messages.check([finding.split(" is ")[0] for finding in findings])


@pytest.mark.parametrize("status", ["error", "timeout", "cancelled", "skipped"])
def test_unfinished_case_has_no_finding(status):
    events = make_timed_run(constant_times(*ALIKE), TWO_HOSTS)
    assert judge_and_collect([*events, case_judged("a", status, "why")]) == []


def test_timed_out_case_reports_its_slow_rank(messages):
    events = make_timed_run(constant_times(10, 10, 10, 20), TWO_HOSTS)
    [finding] = judge_and_collect([*events, case_judged("a", "timeout", "why")])
    messages.check(finding)


def test_single_slow_iteration_does_not_make_a_rank_slow(messages):
    samples = [[*[10.0] * 6, value, *[10.0] * 3] for value in (10.0, 10.0, 10.0, 900.0)]
    findings = judge_and_collect(make_timed_run(samples, TWO_HOSTS))
    messages.check("\n".join(findings))
    assert not any(map(names_slow_part, findings))
    assert len(findings) == 2


def test_short_or_noisy_case_does_not_report_nothing_slow(messages):
    [finding] = judge_and_collect(
        make_timed_run([[value] * 10 for value in (1.0, 1.0)], ["node01", "node01"])
    )
    messages.check(finding)
    *events, end, verdict = make_timed_run(constant_times(*ALIKE), TWO_HOSTS)
    noisy = rank_event("case_end", 0, case="a", disturbed={"waited": 0.6})
    assert not any(
        "nothing" in finding for finding in judge_and_collect([*events, noisy, end, verdict])
    )


def test_briefly_lagging_rank_is_reported_but_not_as_slow(messages):
    samples = [[value] * 10 for value in (1.0, 1.0, 1.0, 1.5)]
    [finding] = judge_and_collect(make_timed_run(samples, TWO_HOSTS))
    messages.check(finding)
    assert not names_slow_part(finding)


def waiting_jobs(**milliseconds):
    """Return events of judged cases: four equal ranks that measure their waits.

    The argument of a case is the time of each of its ten iterations in ms.
    """
    waited = describe_metric("waited_ms", "ms", "none", part_of="time_ms", waits=True)
    cases = [
        describe_case(name, 4, measures="job", metrics=[TIME, waited]) for name in milliseconds
    ]
    events = make_started_run(*cases, hosts=TWO_HOSTS)
    for name, time_ms in milliseconds.items():
        for rank in range(4):
            case_field = {"case": name}
            events.append(rank_event("case_start", rank, **case_field))
            events.append(rank_event("samples", rank, **case_field, values=[time_ms] * 10))
            waits = {"metric": "waited_ms", "values": [0.1] * 10}
            events.append(rank_event("samples", rank, **case_field, **waits))
        events.append(case_judged(name))
    return events


def test_case_that_measures_its_job_reports_that_no_rank_lagged(messages):
    messages.check(judge_and_collect(waiting_jobs(a=10.0)))
    assert (
        judge_and_collect(make_timed_run(constant_times(*ALIKE), TWO_HOSTS, measures="job")) == []
    )  # the waits are unknown


def test_counts_cases_that_are_too_short():
    advice = "take more iterations"
    assert judge_and_collect(waiting_jobs(a=0.5)) == [
        f"a is too short to tell whether a rank is slow; {advice}"
    ]
    assert judge_and_collect(waiting_jobs(a=0.5, b=0.6, c=10.0)) == [
        "no rank is slow in 1 of 3 cases; 2 cases are too short to tell whether a rank is slow; "
        f"{advice}, as for b"
    ]


def test_run_with_injected_slow_rank_does_not_report_nothing_slow():
    case = describe_case("a", 2, inject="slow=1.1")
    hosts = ["node01", "node01"]
    samples = [rank_event("samples", rank, case="a", values=[10.0] * 10) for rank in range(2)]
    assert (
        judge_and_collect(
            [*make_started_run(case, hosts=hosts), *samples, case_judged("a", "failed", "unseen")]
        )
        == []
    )


def test_failed_case_reports_its_slow_rank():
    events = make_timed_run(constant_times(10, 10, 10, 20), TWO_HOSTS)
    assert "rank 3" in judge_and_collect([*events, case_judged("a", "failed", "why")])[0]


def test_ignores_links_without_a_figure():
    assert judge_and_collect(make_links_run(LATENCY, link_figures(8.0, 8.0, 8.0, None, 0.0, 1.0)))[
        0
    ].startswith("no slow link")


def test_zero_times_have_no_finding():
    assert judge_and_collect(make_timed_run(constant_times(0.0, 0.0), ["node01", "node01"])) == []


def findings_with_stolen_time(events, share):
    """Return findings of a run in which a hypervisor took a share of the time."""
    state = build_state(events)
    for case in state.cases.values():
        case.execution.stragglers = tuple(find_stragglers(case))
        for rank in case.measured.ranks.values():
            rank.disturbances = {"stolen": share}
    for job in state.jobs.values():
        job.ranks.clear()
    return collect_findings(state)


@pytest.mark.parametrize(
    ("slow_ms", "share", "reported"),
    [(14.0, 0.0, True), (14.0, 0.3, False), (20.0, 0.3, True)],
    ids=["quiet", "noisy and slightly slow", "noisy and twice as slow"],
)
def test_rank_slightly_slowed_by_noise_is_not_reported(slow_ms, share, reported):
    findings = findings_with_stolen_time(
        make_timed_run(constant_times(10, 10, 10, slow_ms), TWO_HOSTS), share
    )
    assert any(finding.startswith("rank 3 on node02") for finding in findings) is reported


@pytest.mark.parametrize(
    "wording", ["takes 2.00x the time of rank 1", "takes up to 2.00x the time of the median rank"]
)
def test_names_a_slow_part_by_its_wording(wording):
    assert names_slow_part(f"rank 0 on node01 {wording} in a")
    assert names_slow_part("rank 0 on node01 is 2.00x as slow as the median rank in a")
