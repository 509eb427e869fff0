"""Tests of the placement of device groups on machines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.cluster.placement import DeviceGroup, Placements


def place_groups(sizes, used, need, times=1):
    return list(Placements(sizes).place_groups(used, need, times))


@pytest.mark.parametrize(
    ("sizes", "used", "need", "after"),
    [
        ((4, 4), (0, 0), 3, [(3, 0), (2, 1)]),  # fresh and scattered
        ((4, 4), (2, 0), 2, [(2, 2), (4, 0), (3, 1)]),  # fresh, appended, scattered
        ((4, 4), (4, 0), 4, [(4, 4)]),
        ((4, 4), (2, 2), 4, [(4, 4)]),
        ((4, 4), (0, 0), 6, [(4, 2), (3, 3)]),  # leads to plans such as 15:1
        ((2, 1), (1, 1), 1, [(2, 1)]),  # a full last machine, which stops HPGO
        ((1, 3), (0, 0), 3, [(1, 2)]),
    ],
)
def test_order_is_fresh_then_appended_then_scattered(sizes, used, need, after):
    assert place_groups(sizes, used, need) == after


def test_several_groups_are_placed_in_turn():
    assert set(place_groups((2, 2), (0, 0), 1, 2)) == {(1, 1), (2, 0)}
    assert place_groups((2, 2), (0, 0), 1, 4) == [(2, 2)]


def test_group_lists_its_devices():
    group = DeviceGroup((1, 0), (3, 2))
    assert group.list_devices((4, 4)) == (1, 2, 4, 5)
    assert group.devices_per_machine == (2, 2)


def scatter_one_by_one(used, need, sizes):
    """Return the used devices after scattering one device at a time."""
    after = list(used)
    while need:
        for machine, size in enumerate(sizes):
            if after[machine] < size and need:
                after[machine] += 1
                need -= 1
    return tuple(after)


@settings(max_examples=100)
@given(st.data())
def test_scattering_matches_dealing_one_by_one(data):
    sizes = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    used = tuple(data.draw(st.integers(0, size)) for size in sizes)
    need = data.draw(st.integers(0, sum(sizes) - sum(used)))
    placements = place_groups(sizes, used, need)
    assert scatter_one_by_one(used, need, sizes) in placements
    assert all(sum(used_after) == sum(used) + need for used_after in placements)
    assert all(
        a <= b <= c
        for used_after in placements
        for a, b, c in zip(used, used_after, sizes, strict=True)
    )
