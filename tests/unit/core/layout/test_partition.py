"""Who owns and who sends which pixels, against pixel-by-pixel brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.layout.partition import (
    EMPTY_BOX,
    Partition,
    Piece,
    Transfers,
    halo_transfers,
    redistribution,
)
from spbench_core.layout.tiles import Box, Grid

brute_force = settings(max_examples=60)


@st.composite
def partitions(draw, height=None, width=None, size=None):
    """Tiles of any ranks in any order; some are empty where the image is small."""
    rows = draw(st.integers(1, 4))
    cols = draw(st.integers(1, 4))
    if size is not None and rows * cols > size:
        rows, cols = draw(st.sampled_from([(1, size), (size, 1), (1, 1)]))
    if size is None:
        size = rows * cols + draw(st.integers(0, 3))
    ranks = draw(st.permutations(range(size)))[: rows * cols]
    if height is None:
        height = draw(st.integers(1, 14))
        width = draw(st.integers(1, 14))
    return Partition(Grid(rows, cols), height, width, tuple(ranks), size)


@st.composite
def boxes(draw, image):
    rows = sorted(draw(st.tuples(*[st.integers(0, image.rows[1])] * 2)))
    cols = sorted(draw(st.tuples(*[st.integers(0, image.cols[1])] * 2)))
    return Box(tuple(rows), tuple(cols))


@st.composite
def needs(draw):
    """Transfers of any boxes."""
    owned = draw(partitions())
    return Transfers(owned, tuple(draw(boxes(owned.image)) for _ in range(owned.size)))


@st.composite
def pairs(draw):
    """Two partitions of one image and one communicator."""
    owned = draw(partitions())
    return owned, draw(partitions(owned.height, owned.width, owned.size))


def kept_by(table, rank):
    """The pixels that a rank needs and has."""
    return table.needed[rank].intersect(table.owned.tile(rank))


def mask(image, box):
    pixels = np.zeros((image.height, image.width), dtype=int)
    if not box.empty:
        pixels[slice(*box.rows), slice(*box.cols)] = 1
    return pixels


def near(image, tile, distance):
    """The pixels whose distance to one of the tile's is at most this."""
    own = np.argwhere(mask(image, tile))
    pixels = np.zeros((image.height, image.width), dtype=int)
    for row, col in np.ndindex(pixels.shape):
        if len(own):
            pixels[row, col] = np.abs(own - (row, col)).max(axis=1).min() <= distance
    return pixels


@brute_force
@given(partitions())
def test_tiles_cover_the_image_once(partition):
    total = sum(mask(partition, partition.tile(rank)) for rank in range(partition.size))
    assert (total == 1).all()


@brute_force
@given(partitions())
def test_the_first_rank_named_has_the_first_tile(partition):
    cols = partition.grid.cols
    for place, rank in enumerate(partition.ranks):
        tile = partition.tile(rank)
        if place % cols:
            left = partition.tile(partition.ranks[place - 1])
            assert (tile.rows, tile.cols[0]) == (left.rows, left.cols[1])
        if place >= cols:
            above = partition.tile(partition.ranks[place - cols])
            assert (tile.rows[0], tile.cols) == (above.rows[1], above.cols)
    for rank in set(range(partition.size)) - set(partition.ranks):
        assert partition.tile(rank).empty


@pytest.mark.slow
@brute_force
@given(needs())
def test_each_needed_pixel_comes_once_and_from_its_owner(table):
    for rank in range(table.owned.size):
        total = mask(table.owned, kept_by(table, rank))
        assert (total <= mask(table.owned, table.owned.tile(rank))).all()
        pieces = table.list_received(rank)
        for piece in pieces:
            assert not piece.box.empty
            pixels = mask(table.owned, piece.box)
            assert (pixels <= mask(table.owned, table.owned.tile(piece.peer))).all()
            total += pixels
        assert (total == mask(table.owned, table.needed[rank])).all()
        peers = [piece.peer for piece in pieces]
        assert rank not in peers
        assert peers == sorted(set(peers))


@pytest.mark.slow
@brute_force
@given(needs())
def test_what_one_sends_the_other_receives(table):
    ranks = range(table.owned.size)
    sent = {(rank, piece.peer, piece.box) for rank in ranks for piece in table.list_sent(rank)}
    received = {(p.peer, rank, p.box) for rank in ranks for p in table.list_received(rank)}
    assert sent == received
    for rank in ranks:
        peers = [piece.peer for piece in table.list_sent(rank)]
        assert peers == sorted(set(peers))


@brute_force
@given(partitions(), st.integers(1, 9))
def test_a_halo_is_every_pixel_near_the_tile(partition, halo_len):
    table = halo_transfers(partition, halo_len)
    for rank in range(partition.size):
        tile = partition.tile(rank)
        wanted = near(partition, tile, halo_len)
        assert (mask(partition, table.needed[rank]) == wanted).all()
        received = sum(
            (mask(partition, piece.box) for piece in table.list_received(rank)),
            np.zeros_like(wanted),
        )
        assert (received == wanted - mask(partition, tile)).all()


@brute_force
@given(pairs())
def test_redistribution_moves_each_pixel_once_and_only_where_its_owner_changes(pair):
    owned, wanted = pair
    table = redistribution(owned, wanted)
    moved = np.zeros((owned.height, owned.width), dtype=int)
    stays = np.zeros_like(moved)
    for rank in range(owned.size):
        had = mask(owned, owned.tile(rank))
        has = mask(owned, wanted.tile(rank))
        assert (mask(owned, kept_by(table, rank)) == had * has).all()
        stays += had * has
        for piece in table.list_sent(rank):
            pixels = mask(owned, piece.box)
            assert (pixels <= mask(owned, wanted.tile(piece.peer))).all()
            moved += pixels
    assert (moved == 1 - stays).all()


@brute_force
@given(partitions())
def test_redistribution_to_the_same_tiles_sends_nothing(partition):
    table = redistribution(partition, partition)
    assert not any(table.list_sent(rank) for rank in range(partition.size))


def test_a_tile_smaller_than_the_halo_hears_from_further_tiles():
    table = halo_transfers(Partition.from_grid(Grid(1, 4), 8, 8), 5)
    assert table.list_received(0) == (
        Piece(1, Box((0, 8), (2, 4))),
        Piece(2, Box((0, 8), (4, 6))),
        Piece(3, Box((0, 8), (6, 7))),
    )


def test_a_square_grid_has_corners():
    table = halo_transfers(Partition.from_grid(Grid(2, 2), 10, 10), 2)
    assert Piece(3, Box((5, 7), (5, 7))) in table.list_received(0)
    assert Piece(3, Box((3, 5), (3, 5))) in table.list_sent(0)


def test_a_single_tile_has_no_halo():
    partition = Partition.from_grid(Grid(1, 1), 10, 10)
    table = halo_transfers(partition, 3)
    assert table.list_received(0) == ()
    assert table.list_sent(0) == ()
    assert kept_by(table, 0) == partition.image


def test_an_empty_tile_has_no_halo():
    partition = Partition.from_grid(Grid(1, 3), 4, 2)
    table = halo_transfers(partition, 1)
    assert partition.tile(0).empty
    assert table.list_received(0) == ()
    assert table.list_sent(0) == ()
    assert table.list_received(1) == (Piece(2, Box((0, 4), (1, 2))),)


def test_tiles_come_together_on_one_rank():
    tiles = Partition.from_grid(Grid(1, 3), 4, 9, ranks=[4, 0, 2], size=5)
    whole = Partition.from_grid(Grid(1, 1), 4, 9, ranks=[2], size=5)
    join = redistribution(tiles, whole)
    split = redistribution(whole, tiles)
    pieces = (Piece(0, Box((0, 4), (3, 6))), Piece(4, Box((0, 4), (0, 3))))
    assert join.list_received(2) == pieces
    assert split.list_sent(2) == pieces
    assert kept_by(join, 2) == kept_by(split, 2) == Box((0, 4), (6, 9))
    assert join.list_sent(1) == split.list_received(1) == ()


def test_resized_keeps_the_tiles_of_the_ranks():
    partition = Partition.from_grid(Grid(2, 1), 10, 6, ranks=[3, 1], size=4).resize(5, 3)
    assert partition.tile(3) == Box((0, 2), (0, 3))
    assert partition.tile(1) == Box((2, 5), (0, 3))
    assert partition.tile(0) == EMPTY_BOX


@pytest.mark.parametrize(
    ("ranks", "size", "words"),
    [
        ([0, 1, 2], 4, "has 2 tiles"),
        ([0], 1, "has 2 tiles"),
        ([1, 1], 2, "owns two tiles"),
        ([0, 2], 2, "not all ranks of a communicator of 2"),
        ([-1, 0], 2, "not all ranks of a communicator of 2"),
    ],
)
def test_owners_that_do_not_fit_are_refused(ranks, size, words):
    with pytest.raises(ValueError, match=words):
        Partition.from_grid(Grid(1, 2), 8, 8, ranks=ranks, size=size)


@pytest.mark.parametrize("other", [(7, 8, 2), (8, 7, 2), (8, 8, 3)])
def test_redistribution_of_another_image_is_refused(other):
    height, width, size = other
    owned = Partition.from_grid(Grid(1, 2), 8, 8)
    wanted = Partition.from_grid(Grid(2, 1), height, width, size=size)
    with pytest.raises(ValueError, match="cannot become"):
        redistribution(owned, wanted)
