import pytest
from events import described, judged, measured, rank_event, started, state_of, timed

from spbench.record.findings import findings


def found(events):
    return findings(state_of(events).cases.values())


ALIKE = [10.0, 10.2, 9.9, 10.1]
TWO_HOSTS = ["node01", "node01", "node02", "node02"]


def times(*values):
    return [[value] * 3 for value in values]


def test_a_slow_rank_is_named_with_its_host():
    assert found(timed(times(10, 10, 10, 20), TWO_HOSTS)) == [
        "Slowest rank: 3 on node02, 2.00x the median rank's time in a."
    ]


def test_a_slow_host_is_named_rather_than_its_ranks():
    hosts = [f"node0{number}" for number in (1, 1, 2, 2, 3, 3)]
    assert found(timed(times(10, 10, 20, 21, 10, 10), hosts)) == [
        "Slowest host: node02, 2.05x the median host's time in a."
    ]


def test_one_rank_is_compared_with_none():
    assert found(timed(times(10), ["node01"])) == []


def test_ranks_that_are_alike_are_called_so():
    assert found(timed(times(*ALIKE), TWO_HOSTS)) == [
        "All alike: 2 hosts, 4 ranks, none more than 1 % slower than the median of its kind."
    ]


def pairs(*figures):
    """Figures of the links 0-1 (within node01), 2-3 (within node02), and 0-2, 0-3, 1-2 between."""
    places = [(0, "node01"), (1, "node01"), (2, "node02"), (3, "node02")]
    links = [(0, 1), (2, 3), (0, 2), (0, 3), (1, 2)]
    return {
        (places[a], places[b]): figure for (a, b), figure in zip(links, figures, strict=True)
    }


LATENCY = pairs(0.5, 0.5, 2.0, 2.0, 2.0)
BANDWIDTH = pairs(8.0, 8.0, 1.0, 1.0, 1.0)


def test_links_are_compared_with_their_own_kind_only():
    assert found(measured(LATENCY, BANDWIDTH)) == [
        "All alike: 2 hosts, 4 ranks, 5 links, none more than 0 % slower"
        " than the median of its kind."
    ]


@pytest.mark.parametrize(
    ("latency", "bandwidth", "sentence"),
    [
        (
            pairs(0.5, 0.5, 2.0, 2.0, 8.0),
            BANDWIDTH,
            "Slowest link: rank 1 on node01 to rank 2 on node02, latency 8 us against a median "
            "of 2 in links.",
        ),
        (
            LATENCY,
            pairs(8.0, 8.0, 0.25, 1.0, 1.0),
            "Slowest link: rank 0 on node01 to rank 2 on node02, bandwidth 0.25 GB/s against a "
            "median of 1 in links.",
        ),
        (
            pairs(0.5, 1.5, 2.0, 2.0, 2.0),
            BANDWIDTH,
            "Slowest link: rank 2 on node02 to rank 3 on node02, latency 1.5 us against a median "
            "of 1 in links.",
        ),
    ],
    ids=["latency between hosts", "bandwidth between hosts", "latency within a host"],
)
def test_a_slow_link_is_named_with_both_ends(latency, bandwidth, sentence):
    assert found(measured(latency, bandwidth)) == [sentence]


def test_the_slowest_of_ranks_and_links_is_the_one_that_is_told():
    cases = [described("a", 4), described("links", 4, measures="link")]
    slow_link = [event for event in measured(LATENCY, BANDWIDTH) if event["event"] == "metric"]
    slow_link[2]["value"] = 20.0
    slow_rank = [
        rank_event("samples", rank, values=[value]) for rank, value in enumerate([1, 1, 1, 2.0])
    ]
    events = [*started(*cases, hosts=TWO_HOSTS), *slow_rank, *slow_link]
    [sentence] = found([*events, judged("a"), judged("links")])
    assert sentence.startswith("Slowest link: rank 0 on node01 to rank 2 on node02, latency 20 us")


@pytest.mark.parametrize("status", ["error", "timeout", "cancelled", "skipped"])
def test_a_case_that_did_not_end_says_nothing(status):
    events = timed(times(10, 10, 10, 20), TWO_HOSTS)
    assert found([*events, judged("a", status, "why")]) == []


def test_a_failed_case_still_has_its_times():
    events = timed(times(10, 10, 10, 20), TWO_HOSTS)
    assert "rank: 3" in found([*events, judged("a", "failed", "why")])[0]


def test_links_without_a_figure_are_left_out():
    assert found(measured(LATENCY, pairs(8.0, 8.0, None, 0.0, 1.0)))[0].startswith("All alike")


def test_times_of_nothing_are_compared_with_none():
    assert found(timed(times(0.0, 0.0), ["node01", "node01"])) == []
