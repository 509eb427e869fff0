"""The interval table against pixel-by-pixel brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_workers.layout import Box, Grid
from spbench_workers.spatial.partition import HaloTable


@st.composite
def tables(draw, empty_tiles=False):
    rows, cols = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    least = (1, 1) if empty_tiles else (rows, cols)
    height = draw(st.integers(least[0], least[0] + 12))
    width = draw(st.integers(least[1], least[1] + 12))
    return HaloTable(Grid(rows, cols), height, width, draw(st.integers(1, 9)))


def mask(table, box):
    pixels = np.zeros((table.height, table.width), dtype=bool)
    if not box.empty:
        pixels[slice(*box.rows), slice(*box.cols)] = True
    return pixels


def wanted(table, rank):
    """The halo of a rank: pixels near one of its own, by distance, and not its own."""
    own = np.argwhere(mask(table, table.tile(rank)))
    pixels = np.zeros((table.height, table.width), dtype=bool)
    for row, col in np.ndindex(pixels.shape):
        if len(own):
            distance = np.abs(own - (row, col)).max(axis=1).min()
            pixels[row, col] = 0 < distance <= table.halo_len
    return pixels


@settings(max_examples=60, deadline=None)
@given(tables())
def test_tiles_cover_the_image_once(table):
    total = sum(mask(table, table.tile(rank)).astype(int) for rank in range(table.grid.size))
    assert (total == 1).all()


@settings(max_examples=60, deadline=None)
@given(tables(empty_tiles=True))
def test_received_pieces_are_the_halo_each_pixel_once_and_from_its_owner(table):
    for rank in range(table.grid.size):
        pieces = table.received_by(rank)
        total = np.zeros((table.height, table.width), dtype=int)
        for piece in pieces:
            assert piece.target == rank
            assert not piece.box.empty
            pixels = mask(table, piece.box)
            assert (mask(table, table.tile(piece.source)) >= pixels).all()
            total += pixels
        assert (total == wanted(table, rank)).all()
        assert len({piece.source for piece in pieces}) == len(pieces)


@settings(max_examples=60, deadline=None)
@given(tables(empty_tiles=True))
def test_what_one_sends_the_other_receives(table):
    ranks = range(table.grid.size)
    sent = {piece for rank in ranks for piece in table.sent_by(rank)}
    received = {piece for rank in ranks for piece in table.received_by(rank)}
    assert sent == received


@settings(max_examples=60, deadline=None)
@given(tables())
def test_padded_is_tile_and_halo(table):
    for rank in range(table.grid.size):
        tile, padded = mask(table, table.tile(rank)), mask(table, table.padded(rank))
        assert (padded == (tile | wanted(table, rank))).all()


def test_a_tile_smaller_than_the_halo_hears_from_further_tiles():
    table = HaloTable(Grid(1, 4), 8, 8, halo_len=5)
    boxes = {piece.source: piece.box for piece in table.received_by(0)}
    assert boxes == {
        1: Box((0, 8), (2, 4)),
        2: Box((0, 8), (4, 6)),
        3: Box((0, 8), (6, 7)),
    }


def test_a_square_grid_has_corners():
    table = HaloTable(Grid(2, 2), 10, 10, halo_len=2)
    assert table.piece(3, 0) == Box((5, 7), (5, 7))
    assert table.piece(0, 3) == Box((3, 5), (3, 5))


def test_a_single_tile_has_no_halo():
    table = HaloTable(Grid(1, 1), 10, 10, halo_len=3)
    assert table.received_by(0) == ()
    assert table.sent_by(0) == ()
    assert table.padded(0) == table.image
