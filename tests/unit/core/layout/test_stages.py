"""Coordinates and peers of ranks: replica x stage x tile, mirrored or not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    assert layout.rank_count == ranks
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
    assert layout.list_peer_ranks(layout.locate_rank(7, 1), 1) == (3,)


@pytest.mark.parametrize("rank", [-1, 5])
def test_rejects_a_rank_outside_the_layout(rank, messages):
    layout = build_layout(2, [Grid(2, 2)])
    with messages.raises(ValueError):
        layout.locate_rank(rank)


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
        all_coordinates = [layout.locate_rank(rank, direction) for rank in range(layout.rank_count)]
        assert len(set(all_coordinates)) == layout.rank_count
        for rank, coordinates in enumerate(all_coordinates):
            ranks = layout.list_stage_ranks(coordinates.stage, coordinates.replica, direction)
            stage = layout.stages[coordinates.stage]
            assert ranks[coordinates.tile if stage.spatial else coordinates.member] == rank
            assert len(ranks) == stage.rank_count


@given(layouts())
def test_senders_and_receivers_agree(layout):
    for direction in layout.directions:
        all_coordinates = [layout.locate_rank(rank, direction) for rank in range(layout.rank_count)]
        for rank, coordinates in enumerate(all_coordinates):
            senders = layout.list_peer_ranks(coordinates, coordinates.stage - 1)
            receivers = layout.list_peer_ranks(coordinates, coordinates.stage + 1)
            assert bool(senders) == (coordinates.stage > 0)
            assert bool(receivers) == (coordinates.stage < len(layout.stages) - 1)
            for peer in senders + receivers:
                peer_coordinates = all_coordinates[peer]
                assert rank in layout.list_peer_ranks(peer_coordinates, coordinates.stage)
                assert peer_coordinates.replica == coordinates.replica


def list_next_ranks(layout, rank):
    coordinates = layout.locate_rank(rank)
    return layout.list_peer_ranks(coordinates, coordinates.stage + 1)


def test_members_keep_their_share_between_two_stages_of_members():
    layout = build_layout(3, [Grid(1, 2)], members=2)
    assert list_next_ranks(layout, 0) == (2, 3)
    assert list_next_ranks(layout, 3) == (5,)
    assert layout.list_peer_ranks(layout.locate_rank(3), 0) == (0, 1)
    assert layout.list_peer_ranks(layout.locate_rank(5), 1) == (3,)
    layout = ModelLayout((Stage(members=2), Stage(members=3)))
    assert list_next_ranks(layout, 1) == (2, 3, 4)
