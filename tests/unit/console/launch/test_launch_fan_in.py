import pytest

from spbench.launch.fan_in import FLAT_MOST, connections, relays
from spbench.launch.launcher import Placed
from spbench.suites.settings import LaunchSettings

TWO_NODES = (Placed("node01", 40), Placed("node02", 24), Placed("node01", 8))
ALONE = tuple(Placed(f"node{number}", 1) for number in range(FLAT_MOST + 1))


@pytest.mark.parametrize(
    ("fan_in", "np", "placement", "expected"),
    [
        ("auto", FLAT_MOST, (), False),
        ("auto", FLAT_MOST + 1, (), True),
        ("auto", FLAT_MOST + 1, TWO_NODES, True),
        ("auto", FLAT_MOST + 1, ALONE, False),
        ("node", 2, (), True),
        ("node", FLAT_MOST + 1, ALONE, True),
        ("flat", 100_000, TWO_NODES, False),
    ],
)
def test_relays_are_chosen_by_number_unless_the_settings_say(fan_in, np, placement, expected):
    assert relays(LaunchSettings(fan_in=fan_in), np, placement) is expected


def test_behind_relays_a_connection_a_node_is_needed_where_nodes_are_known():
    assert connections(LaunchSettings(fan_in="node"), 72, TWO_NODES) == 2
    assert connections(LaunchSettings(fan_in="flat"), 72, TWO_NODES) == 72
    assert connections(LaunchSettings(fan_in="node"), 72, ()) == 72
