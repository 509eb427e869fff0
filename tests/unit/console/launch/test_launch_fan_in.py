"""Tests of choosing relays and counting connections."""

import pytest

from spbench.launch.jobs import MAX_DIRECT_RANKS, count_connections, uses_relays
from spbench.launch.launcher import RankBlock
from spbench.suites.settings import LaunchSettings

TWO_NODES = (RankBlock("node01", 40), RankBlock("node02", 24), RankBlock("node01", 8))
ONE_RANK_PER_NODE = tuple(RankBlock(f"node{number}", 1) for number in range(MAX_DIRECT_RANKS + 1))


@pytest.mark.parametrize(
    ("fan_in", "np", "placement", "expected"),
    [
        ("auto", MAX_DIRECT_RANKS, (), False),
        ("auto", MAX_DIRECT_RANKS + 1, (), True),
        ("auto", MAX_DIRECT_RANKS + 1, TWO_NODES, True),
        ("auto", MAX_DIRECT_RANKS + 1, ONE_RANK_PER_NODE, False),
        ("node", 2, (), True),
        ("node", MAX_DIRECT_RANKS + 1, ONE_RANK_PER_NODE, True),
        ("flat", 100_000, TWO_NODES, False),
    ],
)
def test_relays_depend_on_rank_count_and_settings(fan_in, np, placement, expected):
    assert uses_relays(LaunchSettings(fan_in=fan_in), np, placement) is expected


def test_relays_need_one_connection_per_known_node():
    assert count_connections(LaunchSettings(fan_in="node"), 72, TWO_NODES) == 2
    assert count_connections(LaunchSettings(fan_in="flat"), 72, TWO_NODES) == 72
    assert count_connections(LaunchSettings(fan_in="node"), 72, ()) == 72
