"""Owned and transferred pixels, compared with brute force over all pixels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.layout.partition import (
    EMPTY_BOX,
    Partition,
    Piece,
    Transfers,
    make_halo_transfers,
    make_redistribution,
)
from spbench_core.layout.tiles import Box, Grid

brute_force = settings(max_examples=60)


@st.composite
def random_partitions(draw, height=None, width=None, size=None):
    """Draw tiles of random ranks; in a small image, some are empty."""
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
def random_boxes(draw, image):
    rows = sorted(draw(st.tuples(*[st.integers(0, image.rows[1])] * 2)))
    cols = sorted(draw(st.tuples(*[st.integers(0, image.cols[1])] * 2)))
    return Box(tuple(rows), tuple(cols))


@st.composite
def random_transfers(draw):
    """Draw transfers of random boxes."""
    owned = draw(random_partitions())
    return Transfers(owned, tuple(draw(random_boxes(owned.image)) for _ in range(owned.size)))


@st.composite
def partition_pairs(draw):
    """Draw two partitions with the same image and communicator."""
    owned = draw(random_partitions())
    return owned, draw(random_partitions(owned.height, owned.width, owned.size))


def find_kept_box(table, rank):
    """Return the box of pixels that a rank needs and already owns."""
    return table.needed[rank].intersect(table.owned.tile(rank))


def make_mask(image, box):
    pixels = np.zeros((image.height, image.width), dtype=int)
    if not box.empty:
        pixels[slice(*box.rows), slice(*box.cols)] = 1
    return pixels


def make_distance_mask(image, tile, distance):
    """Return a mask of the pixels with at most this distance to a pixel of the tile."""
    tile_pixels = np.argwhere(make_mask(image, tile))
    pixels = np.zeros((image.height, image.width), dtype=int)
    for row, col in np.ndindex(pixels.shape):
        if len(tile_pixels):
            pixels[row, col] = np.abs(tile_pixels - (row, col)).max(axis=1).min() <= distance
    return pixels


@brute_force
@given(random_partitions())
def test_tiles_cover_the_image_once(partition):
    total = sum(make_mask(partition, partition.tile(rank)) for rank in range(partition.size))
    assert (total == 1).all()


@brute_force
@given(random_partitions())
def test_ranks_own_tiles_in_row_order(partition):
    cols = partition.grid.cols
    for index, rank in enumerate(partition.ranks):
        tile = partition.tile(rank)
        if index % cols:
            left = partition.tile(partition.ranks[index - 1])
            assert (tile.rows, tile.cols[0]) == (left.rows, left.cols[1])
        if index >= cols:
            upper = partition.tile(partition.ranks[index - cols])
            assert (tile.rows[0], tile.cols) == (upper.rows[1], upper.cols)
    for rank in set(range(partition.size)) - set(partition.ranks):
        assert partition.tile(rank).empty


@pytest.mark.slow
@brute_force
@given(random_transfers())
def test_each_needed_pixel_comes_once_from_its_owner(table):
    for rank in range(table.owned.size):
        total = make_mask(table.owned, find_kept_box(table, rank))
        assert (total <= make_mask(table.owned, table.owned.tile(rank))).all()
        pieces = table.list_received(rank)
        for piece in pieces:
            assert not piece.box.empty
            pixels = make_mask(table.owned, piece.box)
            assert (pixels <= make_mask(table.owned, table.owned.tile(piece.peer))).all()
            total += pixels
        assert (total == make_mask(table.owned, table.needed[rank])).all()
        peers = [piece.peer for piece in pieces]
        assert rank not in peers
        assert peers == sorted(set(peers))


@pytest.mark.slow
@brute_force
@given(random_transfers())
def test_sent_and_received_pieces_agree(table):
    ranks = range(table.owned.size)
    sent_pieces = {
        (rank, piece.peer, piece.box) for rank in ranks for piece in table.list_sent(rank)
    }
    received_pieces = {
        (piece.peer, rank, piece.box) for rank in ranks for piece in table.list_received(rank)
    }
    assert sent_pieces == received_pieces
    for rank in ranks:
        peers = [piece.peer for piece in table.list_sent(rank)]
        assert peers == sorted(set(peers))


@brute_force
@given(random_partitions(), st.integers(1, 9))
def test_a_halo_is_all_pixels_near_the_tile(partition, halo_len):
    table = make_halo_transfers(partition, halo_len)
    for rank in range(partition.size):
        tile = partition.tile(rank)
        expected = make_distance_mask(partition, tile, halo_len)
        assert (make_mask(partition, table.needed[rank]) == expected).all()
        received = sum(
            (make_mask(partition, piece.box) for piece in table.list_received(rank)),
            np.zeros_like(expected),
        )
        assert (received == expected - make_mask(partition, tile)).all()


@brute_force
@given(partition_pairs())
def test_redistribution_moves_only_pixels_that_change_owner(pair):
    owned, target = pair
    table = make_redistribution(owned, target)
    moved = np.zeros((owned.height, owned.width), dtype=int)
    unmoved = np.zeros_like(moved)
    for rank in range(owned.size):
        owned_before = make_mask(owned, owned.tile(rank))
        owned_after = make_mask(owned, target.tile(rank))
        assert (make_mask(owned, find_kept_box(table, rank)) == owned_before * owned_after).all()
        unmoved += owned_before * owned_after
        for piece in table.list_sent(rank):
            pixels = make_mask(owned, piece.box)
            assert (pixels <= make_mask(owned, target.tile(piece.peer))).all()
            moved += pixels
    assert (moved == 1 - unmoved).all()


@brute_force
@given(random_partitions())
def test_redistribution_to_the_same_tiles_sends_nothing(partition):
    table = make_redistribution(partition, partition)
    assert not any(table.list_sent(rank) for rank in range(partition.size))


def test_a_tile_smaller_than_the_halo_receives_from_more_tiles():
    table = make_halo_transfers(Partition.from_grid(Grid(1, 4), 8, 8), 5)
    assert table.list_received(0) == (
        Piece(1, Box((0, 8), (2, 4))),
        Piece(2, Box((0, 8), (4, 6))),
        Piece(3, Box((0, 8), (6, 7))),
    )


def test_a_square_grid_has_corners():
    table = make_halo_transfers(Partition.from_grid(Grid(2, 2), 10, 10), 2)
    assert Piece(3, Box((5, 7), (5, 7))) in table.list_received(0)
    assert Piece(3, Box((3, 5), (3, 5))) in table.list_sent(0)


def test_a_single_tile_has_no_halo():
    partition = Partition.from_grid(Grid(1, 1), 10, 10)
    table = make_halo_transfers(partition, 3)
    assert table.list_received(0) == ()
    assert table.list_sent(0) == ()
    assert find_kept_box(table, 0) == partition.image


def test_an_empty_tile_has_no_halo():
    partition = Partition.from_grid(Grid(1, 3), 4, 2)
    table = make_halo_transfers(partition, 1)
    assert partition.tile(0).empty
    assert table.list_received(0) == ()
    assert table.list_sent(0) == ()
    assert table.list_received(1) == (Piece(2, Box((0, 4), (1, 2))),)


def test_joins_tiles_on_a_single_rank():
    tiles = Partition.from_grid(Grid(1, 3), 4, 9, ranks=[4, 0, 2], size=5)
    single = Partition.from_grid(Grid(1, 1), 4, 9, ranks=[2], size=5)
    join = make_redistribution(tiles, single)
    split = make_redistribution(single, tiles)
    pieces = (Piece(0, Box((0, 4), (3, 6))), Piece(4, Box((0, 4), (0, 3))))
    assert join.list_received(2) == pieces
    assert split.list_sent(2) == pieces
    assert find_kept_box(join, 2) == find_kept_box(split, 2) == Box((0, 4), (6, 9))
    assert join.list_sent(1) == split.list_received(1) == ()


def test_resize_keeps_the_ranks_of_the_tiles():
    partition = Partition.from_grid(Grid(2, 1), 10, 6, ranks=[3, 1], size=4).resize(5, 3)
    assert partition.tile(3) == Box((0, 2), (0, 3))
    assert partition.tile(1) == Box((2, 5), (0, 3))
    assert partition.tile(0) == EMPTY_BOX


@pytest.mark.parametrize(
    ("ranks", "size", "message"),
    [
        ([0, 1, 2], 4, "has 2 tiles"),
        ([0], 1, "has 2 tiles"),
        ([1, 1], 2, "owns two tiles"),
        ([0, 2], 2, "not all ranks of a communicator of 2"),
        ([-1, 0], 2, "not all ranks of a communicator of 2"),
    ],
)
def test_rejects_ranks_that_do_not_match_the_tiles(ranks, size, message):
    with pytest.raises(ValueError, match=message):
        Partition.from_grid(Grid(1, 2), 8, 8, ranks=ranks, size=size)


@pytest.mark.parametrize("target_shape", [(7, 8, 2), (8, 7, 2), (8, 8, 3)])
def test_rejects_redistribution_to_another_image(target_shape):
    height, width, size = target_shape
    owned = Partition.from_grid(Grid(1, 2), 8, 8)
    target = Partition.from_grid(Grid(2, 1), height, width, size=size)
    with pytest.raises(ValueError, match="cannot become"):
        make_redistribution(owned, target)
