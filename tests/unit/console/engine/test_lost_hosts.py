"""Ranks of a lost host, found by any spelling of its name."""

import pytest

from spbench.engine.faults.lost_hosts import find_ranks, names_unknown_host
from spbench.launch.launcher import LostConnection

SPELLINGS = {
    0: {"login", "localhost"},
    1: {"node01", "node01.cluster.example"},
    2: {"Node02"},
    3: {"node02.cluster.example"},
    4: {"10.0.0.4"},
    5: {"10.0.0.5"},
}


@pytest.mark.parametrize(
    ("host", "ranks"),
    [
        ("node01", [1]),
        ("node01.cluster.example", [1]),
        ("NODE01", [1]),
        ("user@node01", [1]),
        ("node01.", [1]),
        ("node02", [2]),
        ("node02.cluster.example", [3]),
        ("node02.elsewhere.example", [2]),
        ("login.cluster.example", [0]),
        ("10.0.0.4", [4]),
        ("10.0.0.40", []),
        ("10", []),
        ("node0", []),
        ("node09", []),
    ],
)
def test_finds_the_ranks_of_a_host_by_any_spelling(host, ranks):
    assert find_ranks(host, SPELLINGS) == ranks


def test_finds_all_ranks_of_a_host_in_order():
    assert find_ranks("node01", {2: {"node01"}, 0: {"node01", "n1"}, 1: {"node02"}}) == [0, 2]


@pytest.mark.parametrize(
    ("hosts", "unknown"),
    [([], False), (["node01", None], False), (["node01", "node09"], True)],
)
def test_detects_an_unknown_host(hosts, unknown):
    lost = [LostConnection(host, "lost") for host in hosts]
    assert names_unknown_host(lost, SPELLINGS) is unknown
