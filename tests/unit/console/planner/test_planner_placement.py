import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.cluster.placement import DeviceGroup, Placements


def outcomes(sizes, used, need, times=1):
    return list(Placements(sizes).place_groups(used, need, times))


@pytest.mark.parametrize(
    ("sizes", "used", "need", "after"),
    [
        ((4, 4), (0, 0), 3, [(3, 0), (2, 1)]),  # fresh and scattered
        ((4, 4), (2, 0), 2, [(2, 2), (4, 0), (3, 1)]),  # fresh, appended, scattered
        ((4, 4), (4, 0), 4, [(4, 4)]),
        ((4, 4), (2, 2), 4, [(4, 4)]),
        ((4, 4), (0, 0), 6, [(4, 2), (3, 3)]),  # 15:1-like plans come of these
        ((2, 1), (1, 1), 1, [(2, 1)]),  # a full last machine, which stops HPGO
        ((1, 3), (0, 0), 3, [(1, 2)]),
    ],
)
def test_groups_come_fresh_first_then_appended_then_scattered(sizes, used, need, after):
    assert outcomes(sizes, used, need) == after


def test_several_groups_come_one_after_another():
    assert set(outcomes((2, 2), (0, 0), 1, 2)) == {(1, 1), (2, 0)}
    assert outcomes((2, 2), (0, 0), 1, 4) == [(2, 2)]


def test_a_group_knows_its_devices():
    group = DeviceGroup((1, 0), (3, 2))
    assert group.devices((4, 4)) == (1, 2, 4, 5)
    assert group.devices_per_machine == (2, 2)


def dealt(used, need, sizes):
    """Scattering, one device at a time."""
    after = list(used)
    while need:
        for at, size in enumerate(sizes):
            if after[at] < size and need:
                after[at] += 1
                need -= 1
    return tuple(after)


@settings(max_examples=100)
@given(st.data())
def test_scattering_in_rounds_is_dealing_one_by_one(data):
    sizes = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    used = tuple(data.draw(st.integers(0, size)) for size in sizes)
    need = data.draw(st.integers(0, sum(sizes) - sum(used)))
    after = outcomes(sizes, used, need)
    assert dealt(used, need, sizes) in after
    assert all(sum(each) == sum(used) + need for each in after)
    assert all(a <= b <= c for each in after for a, b, c in zip(used, each, sizes, strict=True))
