import pytest

from spbench.launch.jobs import MAX_DIRECT_RANKS, count_connections, uses_relays
from spbench.launch.launcher import RankBlock
from spbench.suites.settings import LaunchSettings

TWO_NODES = (RankBlock("node01", 40), RankBlock("node02", 24), RankBlock("node01", 8))
ALONE = tuple(RankBlock(f"node{number}", 1) for number in range(MAX_DIRECT_RANKS + 1))


@pytest.mark.parametrize(
    ("fan_in", "np", "placement", "expected"),
    [
        ("auto", MAX_DIRECT_RANKS, (), False),
        ("auto", MAX_DIRECT_RANKS + 1, (), True),
        ("auto", MAX_DIRECT_RANKS + 1, TWO_NODES, True),
        ("auto", MAX_DIRECT_RANKS + 1, ALONE, False),
        ("node", 2, (), True),
        ("node", MAX_DIRECT_RANKS + 1, ALONE, True),
        ("flat", 100_000, TWO_NODES, False),
    ],
)
def test_relays_are_chosen_by_number_unless_the_settings_say(fan_in, np, placement, expected):
    assert uses_relays(LaunchSettings(fan_in=fan_in), np, placement) is expected


def test_behind_relays_a_connection_a_node_is_needed_where_nodes_are_known():
    assert count_connections(LaunchSettings(fan_in="node"), 72, TWO_NODES) == 2
    assert count_connections(LaunchSettings(fan_in="flat"), 72, TWO_NODES) == 72
    assert count_connections(LaunchSettings(fan_in="node"), 72, ()) == 72
