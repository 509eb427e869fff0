"""Inner outputs and strips, compared with a brute-force computation."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Box, Grid
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.interior_split import (
    MAX_BANDS,
    MIN_BAND,
    MIN_INNER_SHARE,
    compute_window_transfers,
    find_input_of_own_tile,
    split_interior,
    split_whole,
)

brute_force = settings(max_examples=80)


@st.composite
def draw_axes(draw):
    """Draw a window and the length of an axis that it fits on."""
    window = Window(
        kernel=draw(st.integers(1, 5)),
        stride=draw(st.integers(1, 3)),
        padding=draw(st.integers(0, 3)),
        dilation=draw(st.integers(1, 2)),
    )
    shortest = max(1, window.span - 2 * window.padding)
    return window, shortest + draw(st.integers(0, 12))


@st.composite
def draw_layers(draw):
    """Draw a window, the owners of its inputs and those of its outputs."""
    (rows, height) = draw(draw_axes())
    (cols, width) = draw(draw_axes())
    grid = Grid(draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    size = grid.size + draw(st.integers(0, 1))
    ranks = draw(st.permutations(range(size)))[: grid.size]
    owned = Partition.from_grid(grid, height, width, ranks=ranks, size=size)
    window = Window2d(rows, cols)
    return window, owned, owned.resize(*window.output_size(height, width))


def contains(outer, inner):
    return inner.empty or inner.intersect(outer) == inner


def make_mask(image, box):
    pixels = np.zeros((image.height, image.width), dtype=int)
    if not box.empty:
        pixels[slice(*box.rows), slice(*box.cols)] = 1
    return pixels


def make_splits(layer):
    """Return the split of each rank."""
    window, owned, produced = layer
    return [split_interior(window, owned, produced, rank) for rank in range(owned.size)]


def make_inner_splits(layer):
    """Return the ranks and splits with an inner part."""
    return [
        (rank, split)
        for rank, split in enumerate(make_splits(layer))
        if not split.inner_outputs.empty
    ]


def list_taps(axis, outputs):
    """Return the input positions that these outputs read, including padding."""
    return sorted(
        output * axis.stride - axis.padding + axis.dilation * tap
        for output in range(*outputs)
        for tap in range(axis.kernel)
    )


def select_inside(positions, length):
    return sorted({position for position in positions if 0 <= position < length})


@brute_force
@given(draw_layers())
def test_inner_and_strips_cover_the_outputs_once(layer):
    _, _, produced = layer
    for rank, frame in enumerate(make_splits(layer)):
        assert frame.outputs == produced.tile(rank)
        total = sum(make_mask(produced, box) for box in (frame.inner_outputs, *frame.strips))
        assert (total == make_mask(produced, frame.outputs)).all()


@brute_force
@given(draw_layers())
def test_inner_outputs_read_only_the_tile(layer):
    """If an axis is undivided, the operator pads it."""
    window, owned, _ = layer
    for rank, frame in make_inner_splits(layer):
        tile = owned.tile(rank)
        read = window.find_inputs(frame.inner_outputs)
        assert contains(tile, frame.inner_input)
        for parts, axis, padding, crop, needed, tile_range in zip(
            (owned.grid.rows, owned.grid.cols),
            (window.rows, window.cols),
            frame.inner_padding,
            (frame.inner_input.rows, frame.inner_input.cols),
            (read.rows, read.cols),
            (tile.rows, tile.cols),
            strict=True,
        ):
            if parts > 1:
                assert padding == 0
                assert crop == needed
            else:
                assert padding == axis.padding
                assert crop == tile_range


@brute_force
@given(draw_layers())
def test_the_crop_gives_exactly_the_inner_outputs(layer):
    window, _, _ = layer
    for _, frame in make_inner_splits(layer):
        rows, cols = (
            Window(axis.kernel, axis.stride, padding, axis.dilation)
            for axis, padding in zip((window.rows, window.cols), frame.inner_padding, strict=True)
        )
        size = Window2d(rows, cols).output_size(frame.inner_input.height, frame.inner_input.width)
        assert size == (frame.inner_outputs.height, frame.inner_outputs.width)


@brute_force
@given(draw_layers())
def test_the_halo_contains_the_inputs_of_strips(layer):
    window, owned, produced = layer
    halo = compute_window_transfers(window, owned, produced)
    for rank, frame in enumerate(make_splits(layer)):
        for strip in frame.strips:
            assert contains(halo.needed[rank], window.find_inputs(strip).intersect(owned.image))


@brute_force
@given(draw_layers())
def test_a_split_without_overlap_reads_all_inputs(layer):
    window, owned, produced = layer
    for rank in range(owned.size):
        split = split_whole(window, owned, produced, rank)
        (read,) = split.strip_inputs
        assert split.inner_outputs.empty
        assert split.strips == (produced.tile(rank),)
        if split.outputs.empty:
            assert read.empty
            continue
        for axis, padding, (first, last), outputs in zip(
            (window.rows, window.cols),
            split.strip_padding,
            (read.rows, read.cols),
            (split.outputs.rows, split.outputs.cols),
            strict=True,
        ):
            assert first - padding == axis.find_inputs(outputs)[0]
            count = Window(axis.kernel, axis.stride, padding, axis.dilation).count_outputs(
                last - first
            )
            assert count == outputs[1] - outputs[0]
        if owned.tile(rank).intersect(read) == read:
            own_read = find_input_of_own_tile(window, split, owned.tile(rank))
            rows, cols = (
                Window(axis.kernel, axis.stride, padding, axis.dilation)
                for axis, padding in zip(
                    (window.rows, window.cols), split.strip_padding, strict=True
                )
            )
            sizes = Window2d(rows, cols).output_size(own_read.height, own_read.width)
            assert sizes == split.outputs.shape


@brute_force
@given(draw_layers())
def test_the_halo_extends_from_the_first_tap_to_the_last(layer):
    window, owned, produced = layer
    halo = compute_window_transfers(window, owned, produced)
    for rank in range(owned.size):
        outputs = produced.tile(rank)
        pixels = make_mask(owned, halo.needed[rank])
        if outputs.empty:
            assert not pixels.any()
            continue
        rows = list_taps(window.rows, outputs.rows)
        cols = list_taps(window.cols, outputs.cols)
        read = np.zeros_like(pixels)
        read[
            np.ix_(*(select_inside(*axis) for axis in ((rows, owned.height), (cols, owned.width))))
        ] = 1
        assert (read <= pixels).all()
        assert contains(Box((rows[0], rows[-1] + 1), (cols[0], cols[-1] + 1)), halo.needed[rank])


@brute_force
@given(draw_layers())
def test_an_inner_part_is_large_enough_or_absent(layer):
    for frame in make_splits(layer):
        output_count = frame.outputs.height * frame.outputs.width
        inner_count = frame.inner_outputs.height * frame.inner_outputs.width
        if inner_count:
            assert inner_count >= MIN_INNER_SHARE * output_count
        else:
            assert frame.strips == (frame.outputs,)


@brute_force
@given(*[st.integers(1, 4)] * 4)
def test_stride_two_receives_only_from_above_and_left(rows, cols, tile_height, tile_width):
    """The reference sends both sides: twice the bytes that are read."""
    owned = Partition.from_grid(Grid(rows, cols), 2 * tile_height * rows, 2 * tile_width * cols)
    axis = Window(kernel=3, stride=2, padding=1)
    halo = compute_window_transfers(
        Window2d(axis, axis), owned, owned.resize(tile_height * rows, tile_width * cols)
    )
    for rank in range(owned.size):
        row, col = divmod(rank, cols)
        tile = owned.tile(rank)
        above = Box((tile.rows[0] - 1, tile.rows[0]), tile.cols)
        left = Box(tile.rows, (tile.cols[0] - 1, tile.cols[0]))
        corner = Box(above.rows, left.cols)
        expected = set()
        if row:
            expected.add((rank - cols, above))
        if col:
            expected.add((rank - 1, left))
        if row and col:
            expected.add((rank - cols - 1, corner))
        assert {(piece.peer, piece.box) for piece in halo.list_received(rank)} == expected


def test_the_operator_pads_an_undivided_axis():
    axis = Window(kernel=3, padding=1)
    window = Window2d(axis, axis)
    owned = Partition.from_grid(Grid(1, 2), 8, 16)
    frame = split_interior(window, owned, owned, rank=0)
    assert frame.inner_outputs == Box((0, 8), (1, 7))
    assert frame.inner_input == Box((0, 8), (0, 8))
    assert frame.inner_padding == (1, 0)
    assert frame.strips == (Box((0, 8), (0, 1)), Box((0, 8), (7, 8)))


def test_a_small_tile_has_no_inner_part():
    axis = Window(kernel=5, padding=2)
    window = Window2d(axis, axis)
    owned = Partition.from_grid(Grid(2, 2), 8, 8)
    frame = split_interior(window, owned, owned, rank=3)
    assert frame.inner_outputs.empty
    assert frame.strips == (Box((4, 8), (4, 8)),)


def test_a_single_tile_needs_no_strip():
    axis = Window(kernel=3, stride=2, padding=1)
    window = Window2d(axis, axis)
    owned = Partition.from_grid(Grid(1, 1), 9, 9)
    frame = split_interior(window, owned, owned.resize(5, 5), rank=0)
    assert frame.inner_outputs == frame.outputs
    assert frame.strips == ()


@settings(max_examples=60)
@given(st.integers(20, 300), st.integers(20, 300), st.integers(1, 3), st.integers(1, 3))
def test_bands_cover_the_inner_outputs_once(height, width, rows, cols):
    window = Window2d(Window(3, padding=1), Window(5, stride=2, padding=2))
    owned = Partition.from_grid(Grid(rows, cols), height, width)
    produced = owned.resize(*window.output_size(height, width))
    for rank in range(rows * cols):
        frame = split_interior(window, owned, produced, rank)
        bands = frame.cut_bands(window)
        total = sum(
            (make_mask(produced, band.output_box) for band in bands), np.zeros(1, dtype=int)
        )
        assert (total == make_mask(produced, frame.inner_outputs)).all()
        assert len(bands) <= MAX_BANDS
        for band in bands:
            need = window.find_inputs(band.output_box)
            assert contains(frame.inner_input, band.input_box)
            assert contains(band.input_box, need.intersect(owned.image))
            if len(bands) > 1:
                sides = (
                    band.output_box.height if frame.inner_padding[0] == 0 else band.output_box.width
                )
                assert sides >= MIN_BAND
