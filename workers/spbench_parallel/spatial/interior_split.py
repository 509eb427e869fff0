"""Split of a tile's outputs: the interior needs no halo, the strips around it do.

The alternative is to compute all outputs at once from the tile with its halo: `split_whole`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Interval, compute_part_bounds
from spbench_core.layout.window import Window, Window2d

MIN_INNER_SHARE = 0.5
"""The least share of inner outputs. With less, all outputs are computed at once."""
MAX_BANDS = 4
MIN_BAND = 32
"""The least number of rows or columns of a band."""


@dataclass(frozen=True, slots=True)
class InteriorSplit:
    """A rank's outputs in parts: inner ones, and strips that need halos.

    Attributes:
        outputs: The outputs of this rank.
        inner_outputs: The outputs that are computed from the tile only; empty if they are too few.
        inner_input: The pixels of the tile that the inner outputs read.
        inner_padding: Rows and columns that the operator adds around `inner_input`. Along an
            undivided axis, which has no neighbours, this is its own padding.
        strips: The other outputs, as boxes that do not overlap.
        strip_inputs: The pixels that each strip reads, including its halo.
        strip_padding: Rows and columns that the operator adds around these.
    """

    outputs: Box
    inner_outputs: Box
    inner_input: Box
    inner_padding: tuple[int, int]
    strips: tuple[Box, ...]
    strip_inputs: tuple[Box, ...]
    strip_padding: tuple[int, int] = (0, 0)

    def cut_bands(self, window: Window2d) -> tuple[Band, ...]:
        """Return the inner outputs in bands, between which MPI can make progress."""
        if self.inner_outputs.empty:
            return ()
        # The operator would pad every band: an axis that it pads itself is not cut.
        boxes = [self.inner_outputs]
        if self.inner_padding[0] == 0:
            boxes = [
                Box(band, self.inner_outputs.cols)
                for band in _cut_interval(self.inner_outputs.rows)
            ]
        elif self.inner_padding[1] == 0:
            boxes = [
                Box(self.inner_outputs.rows, band)
                for band in _cut_interval(self.inner_outputs.cols)
            ]
        return tuple(Band(box, self._find_band_input(box, window)) for box in boxes)

    def _find_band_input(self, box: Box, window: Window2d) -> Box:
        all_rows = box.rows == self.inner_outputs.rows
        all_cols = box.cols == self.inner_outputs.cols
        return Box(
            self.inner_input.rows if all_rows else window.rows.find_inputs(box.rows),
            self.inner_input.cols if all_cols else window.cols.find_inputs(box.cols),
        )


@dataclass(frozen=True, slots=True)
class Band:
    """A band of inner outputs, and the pixels of the tile that it reads."""

    output_box: Box
    input_box: Box


def _cut_interval(interval: Interval) -> list[Interval]:
    interval_start = interval[0]
    length = interval[1] - interval[0]
    count = max(1, min(MAX_BANDS, length // MIN_BAND))
    parts = [compute_part_bounds(index, count, length) for index in range(count)]
    return [(interval_start + start, interval_start + end) for start, end in parts]


def split_interior(
    window: Window2d, input_tiles: Partition, output_tiles: Partition, rank: int
) -> InteriorSplit:
    """Return the interior split of a rank's outputs; the whole split if few are inner."""
    outputs = output_tiles.tile(rank)
    tile = input_tiles.tile(rank)
    rows = _split_axis(window.rows, input_tiles.grid.rows > 1, outputs.rows, tile.rows)
    cols = _split_axis(window.cols, input_tiles.grid.cols > 1, outputs.cols, tile.cols)
    inner_outputs = Box(rows.inner_outputs, cols.inner_outputs)
    output_count = outputs.height * outputs.width
    if (
        inner_outputs.empty
        or inner_outputs.height * inner_outputs.width < MIN_INNER_SHARE * output_count
    ):
        return split_whole(window, input_tiles, output_tiles, rank)
    inner_input = Box(rows.inner_input, cols.inner_input)
    padding = rows.padding, cols.padding
    strips = border_strips(outputs, inner_outputs)
    strip_inputs = tuple(map(window.find_inputs, strips))
    return InteriorSplit(outputs, inner_outputs, inner_input, padding, strips, strip_inputs)


def split_whole(
    window: Window2d, input_tiles: Partition, output_tiles: Partition, rank: int
) -> InteriorSplit:
    """Return the split of a rank's outputs into a single strip, without inner ones.

    Along an undivided axis the operator adds its own padding.
    """
    outputs = output_tiles.tile(rank)
    tile = input_tiles.tile(rank)
    if outputs.empty:
        return InteriorSplit(outputs, EMPTY_BOX, EMPTY_BOX, (0, 0), (outputs,), (EMPTY_BOX,))
    rows_read, row_padding = _find_read_interval(
        window.rows, input_tiles.grid.rows > 1, outputs.rows, tile.rows
    )
    cols_read, col_padding = _find_read_interval(
        window.cols, input_tiles.grid.cols > 1, outputs.cols, tile.cols
    )
    strip_inputs = (Box(rows_read, cols_read),)
    return InteriorSplit(
        outputs, EMPTY_BOX, EMPTY_BOX, (0, 0), (outputs,), strip_inputs, (row_padding, col_padding)
    )


def compute_window_transfers(
    window: Window2d, input_tiles: Partition, output_tiles: Partition
) -> Transfers:
    """Return the transfers of halos: each rank gets the pixels that its outputs read."""
    read_boxes = (window.find_inputs(output_tiles.tile(rank)) for rank in range(input_tiles.size))
    return Transfers(
        input_tiles, tuple(read_box.intersect(input_tiles.image) for read_box in read_boxes)
    )


@dataclass(frozen=True, slots=True)
class _AxisSplit:
    inner_outputs: Interval
    inner_input: Interval
    padding: int


def _split_axis(window: Window, divided: bool, outputs: Interval, tile: Interval) -> _AxisSplit:
    if not divided:
        return _AxisSplit(outputs, tile, window.padding)
    first_output, end_output = window.find_outputs(tile)
    inner_outputs = max(first_output, outputs[0]), min(end_output, outputs[1])
    return _AxisSplit(inner_outputs, window.find_inputs(inner_outputs), 0)


def _find_read_interval(
    window: Window, divided: bool, outputs: Interval, tile: Interval
) -> tuple[Interval, int]:
    """Return the pixels read along an axis, and the operator's own padding."""
    first_pixel, end_pixel = window.find_inputs(outputs)
    if divided:
        return (first_pixel, end_pixel), 0
    # An output may read only padding, but an operator needs at least one pixel.
    min_length = max(1, window.span - 2 * window.padding)
    return (tile[0], min(tile[1], max(end_pixel, min_length))), window.padding


def find_input_of_own_tile(window: Window2d, split: InteriorSplit, tile: Box) -> Box:
    """Return the pixels that a whole split reads if it reads only this rank's tile.

    They include pixels at the end that the stride skips: cutting them off would cost a copy.
    """
    (read,) = split.strip_inputs
    if read.empty:
        return read
    row_padding, col_padding = split.strip_padding
    return Box(
        _extend_to_end(window.rows, read.rows, row_padding, tile.rows),
        _extend_to_end(window.cols, read.cols, col_padding, tile.cols),
    )


def _extend_to_end(window: Window, read: Interval, padding: int, tile: Interval) -> Interval:
    def count_outputs(end: int) -> int:
        return (end - read[0] + 2 * padding - window.span) // window.stride

    return (read[0], tile[1]) if count_outputs(tile[1]) == count_outputs(read[1]) else read


def border_strips(outputs: Box, inner: Box) -> tuple[Box, ...]:
    """Return the strips around the inner box.

    First those above and below over the full width, then those left and right.
    """
    strips = (
        Box((outputs.rows[0], inner.rows[0]), outputs.cols),
        Box((inner.rows[1], outputs.rows[1]), outputs.cols),
        Box(inner.rows, (outputs.cols[0], inner.cols[0])),
        Box(inner.rows, (inner.cols[1], outputs.cols[1])),
    )
    return tuple(strip for strip in strips if not strip.empty)


def strips_outside(box: Box, image: Box) -> tuple[Box, ...]:
    """Return the strips of a box that are outside the image."""
    if box.empty:
        return ()
    inside = box.intersect(image)
    return (box,) if inside.empty else border_strips(box, inside)
