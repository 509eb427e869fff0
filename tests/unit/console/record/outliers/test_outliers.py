"""Findings on hosts, ranks and links that are outliers among many."""

import random
from itertools import combinations, pairwise

import pytest
from benchmarks.synthetic_cluster import SyntheticCluster, is_exact

from spbench.record.findings import MAX_FINDINGS, collect_findings
from support.sample_events import build_state, make_links_run, make_timed_run

HOSTS = [f"node{number:02}" for number in range(20)]


def collect(events):
    return collect_findings(build_state(events))


def simulate_times(slow, hosts=HOSTS, noise=0.02):
    """Return times in ms of one rank per host; ``slow`` maps ranks to their factors."""
    random_source = random.Random(7)
    return [
        [30.0 * slow.get(rank, 1.0) * (1 + random_source.gauss(0, noise))]
        for rank in range(len(hosts))
    ]


def simulate_links(slow=lambda a, b: 1.0, pairs=None, hosts=HOSTS):
    """Return events of links between hosts; ``slow`` gives the factor of a pair."""
    random_source = random.Random(7)
    latency = {}
    bandwidth = {}
    for first, second in pairs or combinations(range(len(hosts)), 2):
        pair = ((first, hosts[first]), (second, hosts[second]))
        factor = slow(first, second)
        latency[pair] = 2.0 * factor * (1 + random_source.gauss(0, 0.02))
        bandwidth[pair] = 10.0 / factor * (1 + random_source.gauss(0, 0.02))
    return make_links_run(latency, bandwidth)


def test_reports_each_slow_host_slowest_first():
    findings = collect(make_timed_run(simulate_times({3: 1.2, 11: 1.5}), HOSTS))
    assert [finding.split(" takes ")[0] for finding in findings] == ["host node11", "host node03"]
    assert findings[0].endswith(
        "x the time of the median host in a; check it with: spbench doctor --hosts node11"
    )


def test_host_within_the_noise_is_not_reported(messages):
    [finding] = collect(make_timed_run(simulate_times({3: 1.5}, noise=0.2), HOSTS))
    messages.check(finding)


def test_reports_slow_rank_and_slow_host_instead_of_its_ranks():
    hosts = [name for name in HOSTS for _ in range(2)]
    findings = collect(make_timed_run(simulate_times({4: 1.5, 5: 1.5, 9: 1.5}, hosts), hosts))
    assert len(findings) == 2
    assert any(finding.startswith("host node02 takes ") for finding in findings)
    assert any(finding.startswith("rank 9 on node04 takes ") for finding in findings)


def test_reports_slow_host_instead_of_all_its_links(messages):
    [finding] = collect(simulate_links(lambda a, b: 1.3 if 6 in (a, b) else 1.0))
    messages.check(finding)


def test_reports_slow_link_with_both_ends():
    [finding] = collect(simulate_links(lambda a, b: 1.4 if (a, b) == (4, 9) else 1.0))
    start = "link from rank 4 on node04 to rank 9 on node09 takes 1.3"
    assert finding.startswith(start) or finding.startswith(start.replace("1.3", "1.4"))
    assert finding.endswith(" in links; check its cable and switch port")


@pytest.mark.parametrize("slow", [{6}, {6, 13}], ids=["one slow host", "two slow hosts"])
def test_reports_host_whose_two_neighbor_links_are_slow(slow):
    findings = collect(
        simulate_links(lambda a, b: 1.5 if slow & {a, b} else 1.0, list(pairwise(range(20))))
    )
    assert {finding.split(" take ")[0] for finding in findings} == {
        f"links of host node{host:02}" for host in slow
    }


def test_reports_host_instead_of_its_many_slow_links(messages):
    [finding] = collect(simulate_links(lambda a, b: 1.5 if 2 in (a, b) and a + b > 12 else 1.0))
    messages.check(finding)


def test_reports_slow_host_among_eight(messages):
    [finding] = collect(simulate_links(lambda a, b: 2.0 if 2 in (a, b) else 1.0, hosts=HOSTS[:8]))
    messages.check(finding)


def test_reports_the_slowest_link_among_five_hosts(messages):
    [finding] = collect(simulate_links(lambda a, b: 2.0 if 2 in (a, b) else 1.0, hosts=HOSTS[:5]))
    messages.check(finding)
    assert "node02" in finding


def test_link_has_the_mean_of_its_repeats(messages):
    events = simulate_links(lambda a, b: 1.6 if (a, b) == (4, 9) else 1.0)
    metrics = [event for event in events if event["event"] == "metric"]
    second_events = simulate_links()  # the second time the link is as fast as the others
    repeats = [event | {"repeat": 1} for event in second_events if event["event"] == "metric"]
    [finding] = collect([*events[:-1], *repeats, events[-1]])
    assert len(metrics) == len(repeats)
    messages.check(finding)


def test_reports_the_worst_outliers_and_counts_the_rest():
    hosts = [f"node{number:03}" for number in range(100)]
    findings = collect(make_timed_run(simulate_times(dict.fromkeys(range(20), 2.0), hosts), hosts))
    assert len(findings) == MAX_FINDINGS + 1
    assert findings[-1] == f"{20 - MAX_FINDINGS} more hosts, ranks or links are slow"


def test_outlier_that_is_hardly_slower_is_not_reported(messages):
    [finding] = collect(make_timed_run(simulate_times({3: 1.01}, noise=0.0001), HOSTS))
    messages.check(finding)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["one-case", "all-cases", "links"])
def test_simulated_cluster_reports_exactly_the_slow_parts(source):
    cluster = SyntheticCluster(60, 0.05, source, host_slowdown=1.7, link_slowdown=1.6)
    assert [is_exact(cluster, seed) for seed in range(3)] == [True] * 3


@pytest.mark.slow
def test_healthy_simulated_cluster_has_no_finding():
    assert all(is_exact(SyntheticCluster(60, 0.05), seed) for seed in range(5))


def test_simulation_fails_if_slow_parts_are_within_the_noise():
    assert not is_exact(
        SyntheticCluster(40, 0.05, "one-case", host_slowdown=1.05, link_slowdown=1.6), 1
    )
