"""Hosts, ranks and links that are out of line with many others, as a run's findings name them."""

import random
from itertools import combinations, pairwise

import pytest
from benchmarks.made_up_cluster import MadeUp, exact

from spbench.record.findings import MAX_FINDINGS, collect_findings
from unit.events import measured, state_of, timed

HOSTS = [f"node{number:02}" for number in range(20)]


def found(events):
    return collect_findings(state_of(events))


def times(slow, hosts=HOSTS, noise=0.02):
    """Times of one rank a host; slow ones by their numbers."""
    draw = random.Random(7)
    return [[30.0 * slow.get(rank, 1.0) * (1 + draw.gauss(0, noise))] for rank in range(len(hosts))]


def links(slow=lambda a, b: 1.0, pairs=None, hosts=HOSTS):
    """Figures of pairs of hosts, of which some are slow."""
    draw = random.Random(7)
    latency = {}
    bandwidth = {}
    for one, other in pairs or combinations(range(len(hosts)), 2):
        pair = ((one, hosts[one]), (other, hosts[other]))
        by = slow(one, other)
        latency[pair] = 2.0 * by * (1 + draw.gauss(0, 0.02))
        bandwidth[pair] = 10.0 / by * (1 + draw.gauss(0, 0.02))
    return measured(latency, bandwidth)


def test_each_slow_host_is_named_the_slowest_first():
    told = found(timed(times({3: 1.2, 11: 1.5}), HOSTS))
    assert [sentence.split(" is ")[0] for sentence in told] == ["host node11", "host node03"]
    assert told[0].endswith(
        "x as slow as the median host in a; check it with: spbench doctor --hosts node11"
    )


def test_a_host_within_the_noise_of_all_is_not_named():
    [sentence] = found(timed(times({3: 1.5}, noise=0.2), HOSTS))
    assert sentence.startswith("nothing is slow: of 20 hosts and 20 ranks, the slowest takes ")
    assert "in a, which is chance among so many" in sentence


def test_a_rank_is_named_on_its_host_and_a_whole_host_in_place_of_its_ranks():
    hosts = [name for name in HOSTS for _ in range(2)]
    told = found(timed(times({4: 1.5, 5: 1.5, 9: 1.5}, hosts), hosts))
    assert len(told) == 2
    assert any(sentence.startswith("host node02 is ") for sentence in told)
    assert any(sentence.startswith("rank 9 on node04 is ") for sentence in told)


def test_a_slow_host_is_named_in_place_of_its_links():
    [sentence] = found(links(lambda a, b: 1.3 if 6 in (a, b) else 1.0))
    assert sentence.startswith("links of host node06 are 1.3")


def test_a_slow_link_is_named_with_both_ends():
    [sentence] = found(links(lambda a, b: 1.4 if (a, b) == (4, 9) else 1.0))
    start = "link from rank 4 on node04 to rank 9 on node09 is 1.3"
    assert sentence.startswith(start) or sentence.startswith(start.replace("1.3", "1.4"))
    assert sentence.endswith(" in links; check its cable and switch port")


@pytest.mark.parametrize("slow", [{6}, {6, 13}], ids=["one", "two"])
def test_among_links_of_neighbours_a_host_of_which_both_are_slow_is_named(slow):
    told = found(links(lambda a, b: 1.5 if slow & {a, b} else 1.0, list(pairwise(range(20)))))
    assert {sentence.split(" are ")[0] for sentence in told} == {
        f"links of host node{host:02}" for host in slow
    }


def test_a_host_with_many_slow_links_is_named_rather_than_they():
    [sentence] = found(links(lambda a, b: 1.5 if 2 in (a, b) and a + b > 12 else 1.0))
    assert sentence.startswith("links of host node02 are 1.")


def test_of_few_hosts_one_of_which_all_links_are_slow_is_named():
    [sentence] = found(links(lambda a, b: 2.0 if 2 in (a, b) else 1.0, hosts=HOSTS[:8]))
    assert sentence.startswith("links of host node02 are 1.9")


def test_of_so_few_hosts_that_none_can_be_told_the_slowest_link_is_named():
    [sentence] = found(links(lambda a, b: 2.0 if 2 in (a, b) else 1.0, hosts=HOSTS[:5]))
    assert sentence.startswith("link from rank ")
    assert "node02" in sentence


def test_of_repeats_a_link_has_its_mean():
    events = links(lambda a, b: 1.6 if (a, b) == (4, 9) else 1.0)
    metrics = [event for event in events if event["event"] == "metric"]
    again = links()  # the second time the link is as fast as the others
    repeats = [event | {"repeat": 1} for event in again if event["event"] == "metric"]
    [sentence] = found([*events[:-1], *repeats, events[-1]])
    assert len(metrics) == len(repeats)
    assert sentence.startswith("link from rank 4 on node04 to rank 9 on node09 is 1.2")


def test_of_very_many_the_worst_are_named_and_the_rest_counted():
    hosts = [f"node{number:03}" for number in range(100)]
    told = found(timed(times(dict.fromkeys(range(20), 2.0), hosts), hosts))
    assert len(told) == MAX_FINDINGS + 1
    assert told[-1] == f"{20 - MAX_FINDINGS} more hosts, ranks or links are slow"


def test_what_is_out_of_line_but_hardly_slower_is_not_named():
    [sentence] = found(timed(times({3: 1.01}, noise=0.0001), HOSTS))
    assert sentence.startswith("nothing is slow")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["one-case", "all-cases", "links"])
def test_on_a_made_up_cluster_exactly_what_is_slow_is_named(way):
    made = MadeUp(60, 0.05, way, host=1.7, link=1.6)
    assert [exact(made, seed) for seed in range(3)] == [True] * 3


@pytest.mark.slow
def test_on_a_healthy_made_up_cluster_no_one_is_named():
    assert all(exact(MadeUp(60, 0.05), seed) for seed in range(5))


def test_the_proof_fails_where_the_slow_ones_are_within_the_noise():
    assert not exact(MadeUp(40, 0.05, "one-case", host=1.05, link=1.6), 1)
