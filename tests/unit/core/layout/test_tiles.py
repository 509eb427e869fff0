from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.layout.tiles import Box, Grid, compute_part_bounds, make_grid, parse_pair


@given(st.integers(1, 50), st.integers(0, 500))
def test_bounds_are_balanced_and_contiguous(parts, length):
    intervals = [compute_part_bounds(index, parts, length) for index in range(parts)]
    assert intervals[0][0] == 0
    assert intervals[-1][1] == length
    assert all(a[1] == b[0] for a, b in pairwise(intervals))
    sizes = [last - first for first, last in intervals]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("text", "pair"),
    [("7", (7, 7)), (7, (7, 7)), ("2x3", (2, 3)), (" 2 X 3 ", (2, 3)), ("1024x512", (1024, 512))],
)
def test_parses_one_or_two_numbers(text, pair):
    assert parse_pair(text) == pair


@pytest.mark.parametrize("text", ["", "x", "2x", "x3", "2x3x4", "a", "2,3", "1.5", None])
def test_rejects_a_pair_of_other_text(text, messages):
    with messages.raises(ValueError):
        parse_pair(text)


@pytest.mark.parametrize("text", ["0", "0x3", "2x-1", -4])
def test_parse_pair_rejects_numbers_below_one(text):
    with pytest.raises(ValueError, match="below 1"):
        parse_pair(text)


@pytest.mark.parametrize(
    ("method", "parts", "grid"),
    [
        ("vertical", 4, Grid(1, 4)),
        ("horizontal", 3, Grid(3, 1)),
        ("square", 9, Grid(3, 3)),
        ("square", 1, Grid(1, 1)),
    ],
)
def test_grid_covers_all_parts(method, parts, grid):
    assert make_grid(method, parts) == grid


@pytest.mark.parametrize("parts", [2, 3, 6, 8, 15])
def test_rejects_a_square_grid_of_other_numbers(parts, messages):
    with messages.raises(ValueError):
        make_grid("square", parts)


def test_tiles_are_numbered_row_by_row():
    grid = Grid(2, 3)
    assert str(grid) == "2x3"
    assert grid.size == 6
    assert grid.tile(0, 4, 6) == Box((0, 2), (0, 2))
    assert grid.tile(2, 4, 6) == Box((0, 2), (4, 6))
    assert grid.tile(5, 5, 7) == Box((2, 5), (4, 7))


intervals = st.tuples(st.integers(-5, 15), st.integers(-5, 15))
boxes = st.builds(Box, intervals, intervals)


def list_pixels(box):
    return {(row, col) for row in range(*box.rows) for col in range(*box.cols)}


@given(boxes, boxes)
def test_an_intersection_has_the_common_pixels(first, second):
    common = first.intersect(second)
    assert list_pixels(common) == list_pixels(first) & list_pixels(second)
    assert common.empty == (not list_pixels(common))
    assert common.height * common.width == len(list_pixels(common))


def test_a_grown_box_ends_at_the_edge_of_the_image():
    assert Box((0, 3), (4, 6)).grow(2, Box((0, 10), (0, 7))) == Box((0, 5), (2, 7))
