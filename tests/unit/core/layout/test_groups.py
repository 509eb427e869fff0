"""Coordinates and groups of ranks: replica x stage x tile, mirrored or not."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.layout.groups import find_groups
from spbench_core.layout.stages import ModelLayout, RankCoordinates, Stage, build_layout
from spbench_core.layout.tiles import Grid

GRIDS = st.builds(Grid, st.integers(1, 3), st.integers(1, 3)).filter(lambda grid: grid.size > 1)


@st.composite
def layouts(draw, mirrored=None):
    grids = draw(st.lists(GRIDS, max_size=3))
    return build_layout(
        len(grids) + draw(st.integers(0 if grids else 1, 4)),
        grids,
        members=draw(st.integers(1, 3)),
        replicas=draw(st.integers(1, 3)),
        mirrored=draw(st.booleans()) if mirrored is None else mirrored,
    )


@pytest.mark.parametrize(
    ("stages", "grids", "members", "replicas", "ranks"),
    [
        (4, [], 1, 1, 4),
        (2, [Grid(2, 2)], 1, 1, 5),
        (3, [Grid(4, 4)], 1, 1, 18),
        (2, [Grid(2, 2)], 2, 1, 6),
        (2, [Grid(2, 2)], 4, 1, 8),
        (3, [Grid(2, 2), Grid(2, 2)], 1, 1, 9),
        (3, [Grid(1, 4), Grid(1, 2)], 1, 1, 7),
        (4, [Grid(1, 4), Grid(1, 2)], 1, 1, 8),
        (2, [Grid(2, 3)], 1, 1, 7),
        (5, [Grid(2, 2)], 1, 1, 8),
        (2, [], 1, 2, 4),
        (2, [Grid(2, 2)], 1, 2, 10),
        (1, [Grid(1, 2)], 1, 1, 2),
        (3, [], 2, 1, 6),
    ],
)
def test_counts_the_ranks_of_a_layout(stages, grids, members, replicas, ranks):
    layout = build_layout(stages, grids, members=members, replicas=replicas)
    assert layout.ranks == ranks
    assert ranks == replicas * (sum(grid.size for grid in grids) + (stages - len(grids)) * members)


def test_numbers_tiles_then_members_then_replicas():
    layout = build_layout(2, [Grid(2, 2)], members=2, replicas=2)
    assert layout.locate_rank(3) == RankCoordinates(replica=0, stage=0, tile=3, member=0)
    assert layout.locate_rank(5) == RankCoordinates(replica=0, stage=1, tile=0, member=1)
    assert layout.locate_rank(6) == RankCoordinates(replica=1, stage=0, tile=0, member=0)
    assert layout.list_stage_ranks(1, replica=1) == (10, 11)


def test_the_mirrored_pipeline_uses_the_ranks_in_reverse():
    layout = build_layout(5, [Grid(2, 2)], mirrored=True)
    assert [layout.locate_rank(rank, 1).stage for rank in range(8)] == [4, 3, 2, 1, 0, 0, 0, 0]
    assert layout.list_stage_ranks(0, direction=1) == (7, 6, 5, 4)
    assert layout.list_coordinates(0) == (
        RankCoordinates(0, 0, 0, 0),
        RankCoordinates(0, 4, 0, 0, 1),
    )
    groups = find_groups(layout, 7, 1)
    assert groups.tiles == (7, 6, 5, 4)
    assert groups.next == (3,)
    assert groups.mirror == (0, 7)
    assert groups.holders == tuple(range(8))


@pytest.mark.parametrize("rank", [-1, 5])
def test_rejects_a_rank_outside_the_layout(rank, messages):
    layout = build_layout(2, [Grid(2, 2)])
    with messages.raises(ValueError):
        layout.locate_rank(rank)
    with messages.raises(ValueError):
        find_groups(layout, rank)


def test_rejects_invalid_layouts(messages):
    with messages.raises(ValueError):
        build_layout(1, [Grid(1, 2), Grid(1, 2)])
    with messages.raises(ValueError):
        Stage(Grid(1, 2), members=2)
    with messages.raises(ValueError):
        Stage(members=0)
    with messages.raises(ValueError):
        build_layout(0)
    with messages.raises(ValueError):
        build_layout(2).list_stage_ranks(0, direction=1)


@given(layouts())
def test_ranks_and_coordinates_map_one_to_one(layout):
    for direction in layout.directions:
        all_coordinates = [layout.locate_rank(rank, direction) for rank in range(layout.ranks)]
        assert len(set(all_coordinates)) == layout.ranks
        for rank, coordinates in enumerate(all_coordinates):
            ranks = layout.list_stage_ranks(coordinates.stage, coordinates.replica, direction)
            stage = layout.stages[coordinates.stage]
            assert ranks[coordinates.tile if stage.spatial else coordinates.member] == rank
            assert len(ranks) == stage.ranks


@given(layouts())
def test_all_members_of_a_group_agree_on_it(layout):
    for direction in layout.directions:
        groups = [find_groups(layout, rank, direction) for rank in range(layout.ranks)]
        for rank, rank_groups in enumerate(groups):
            for name in ("tiles", "members", "replicas"):
                group = getattr(rank_groups, name)
                assert rank in group
                assert all(getattr(groups[peer], name) == group for peer in group)
            assert len(rank_groups.tiles) == 1 or len(rank_groups.members) == 1
            assert len(rank_groups.replicas) == layout.replicas


@given(layouts())
def test_senders_and_receivers_agree(layout):
    for direction in layout.directions:
        groups = [find_groups(layout, rank, direction) for rank in range(layout.ranks)]
        for rank, rank_groups in enumerate(groups):
            assert all(rank in groups[peer].previous for peer in rank_groups.next)
            assert all(rank in groups[peer].next for peer in rank_groups.previous)
            assert bool(rank_groups.previous) == (rank_groups.coordinates.stage > 0)
            assert bool(rank_groups.next) == (
                rank_groups.coordinates.stage < len(layout.stages) - 1
            )
            assert all(
                groups[peer].coordinates.replica == rank_groups.coordinates.replica
                for peer in rank_groups.next
            )


def test_members_keep_their_share_between_two_stages_of_members():
    layout = build_layout(3, [Grid(1, 2)], members=2)
    assert find_groups(layout, 0).next == (2, 3)
    assert find_groups(layout, 3).next == (5,)
    assert find_groups(layout, 3).previous == (0, 1)
    assert find_groups(layout, 5).previous == (3,)
    layout = ModelLayout((Stage(members=2), Stage(members=3)))
    assert find_groups(layout, 1).next == (2, 3, 4)


@pytest.mark.slow
@given(layouts(mirrored=True))
def test_all_ranks_of_a_stage_hold_its_weights(layout):
    holder_counts = Counter()
    for rank in range(layout.ranks):
        for direction in (0, 1):
            groups = find_groups(layout, rank, direction)
            holder_counts[groups.coordinates.stage] += 1
            assert rank in groups.holders
            assert len(set(groups.holders)) == len(groups.holders)
            assert set(groups.tiles + groups.members + groups.replicas) <= set(groups.holders)
            assert set(groups.mirror) <= set(groups.holders)
            # Both ranks of a mirrored pair list it in the same order.
            partner = groups.mirror[-1 if groups.mirror[0] == rank else 0]
            assert find_groups(layout, partner, 1 - direction).mirror == groups.mirror
    sizes = {index: stage.ranks for index, stage in enumerate(layout.stages)}
    assert holder_counts == {index: 2 * size * layout.replicas for index, size in sizes.items()}


def test_the_middle_of_an_odd_pipeline_mirrors_itself():
    layout = build_layout(3, mirrored=True)
    assert find_groups(layout, 1).mirror == (1,)
    assert find_groups(layout, 1).holders == (1,)
    assert find_groups(layout, 0).mirror == (0, 2)
    assert find_groups(build_layout(3), 1).mirror == ()
