"""Split of a tile's outputs: the interior needs no halo, the strips around it do.

The alternative is to compute all outputs at once from the tile with its halo: `make_whole_split`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Interval, part_bounds
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
        inner: The outputs that are computed from the tile only; empty if they are too few.
        crop: The pixels of the tile that the inner outputs read.
        padding: Rows and columns that the operator adds around the crop. Along an undivided axis,
            which has no neighbours, this is its own padding.
        strips: The other outputs, as boxes that do not overlap.
        strip_inputs: The pixels that each strip reads, including its halo.
        strip_padding: Rows and columns that the operator adds around these.
    """

    outputs: Box
    inner: Box
    crop: Box
    padding: tuple[int, int]
    strips: tuple[Box, ...]
    strip_inputs: tuple[Box, ...]
    strip_padding: tuple[int, int] = (0, 0)

    def bands(self, window: Window2d) -> tuple[Band, ...]:
        """Return the inner outputs in bands; MPI can make progress between two of them."""
        if self.inner.empty:
            return ()
        # The operator would pad every band: an axis that it pads itself is not cut.
        boxes = [self.inner]
        if self.padding[0] == 0:
            boxes = [Box(band, self.inner.cols) for band in _cut_interval(self.inner.rows)]
        elif self.padding[1] == 0:
            boxes = [Box(self.inner.rows, band) for band in _cut_interval(self.inner.cols)]
        return tuple(Band(box, self._find_crop(box, window)) for box in boxes)

    def _find_crop(self, box: Box, window: Window2d) -> Box:
        all_rows = box.rows == self.inner.rows
        all_cols = box.cols == self.inner.cols
        return Box(
            self.crop.rows if all_rows else window.rows.find_inputs(box.rows),
            self.crop.cols if all_cols else window.cols.find_inputs(box.cols),
        )


@dataclass(frozen=True, slots=True)
class Band:
    """A band of inner outputs, and the pixels of the tile that it reads."""

    outputs: Box
    crop: Box


def _cut_interval(interval: Interval) -> list[Interval]:
    first = interval[0]
    length = interval[1] - interval[0]
    count = max(1, min(MAX_BANDS, length // MIN_BAND))
    cuts = [part_bounds(index, count, length) for index in range(count)]
    return [(first + start, first + end) for start, end in cuts]


def make_interior_split(
    window: Window2d, owned: Partition, produced: Partition, rank: int
) -> InteriorSplit:
    """Return the interior split of a rank's outputs; the whole split if few are inner."""
    outputs = produced.tile(rank)
    tile = owned.tile(rank)
    rows = _split_axis(window.rows, owned.grid.rows > 1, outputs.rows, tile.rows)
    cols = _split_axis(window.cols, owned.grid.cols > 1, outputs.cols, tile.cols)
    inner = Box(rows.inner, cols.inner)
    area = outputs.height * outputs.width
    if inner.empty or inner.height * inner.width < MIN_INNER_SHARE * area:
        return make_whole_split(window, owned, produced, rank)
    crop = Box(rows.crop, cols.crop)
    padding = rows.padding, cols.padding
    strips = border_strips(outputs, inner)
    strip_inputs = tuple(map(window.find_inputs, strips))
    return InteriorSplit(outputs, inner, crop, padding, strips, strip_inputs)


def make_whole_split(
    window: Window2d, owned: Partition, produced: Partition, rank: int
) -> InteriorSplit:
    """Return the split of a rank's outputs into a single strip, without inner ones.

    Along an undivided axis the operator adds its own padding.
    """
    outputs = produced.tile(rank)
    tile = owned.tile(rank)
    if outputs.empty:
        return InteriorSplit(outputs, EMPTY_BOX, EMPTY_BOX, (0, 0), (outputs,), (EMPTY_BOX,))
    rows, top = _read_axis(window.rows, owned.grid.rows > 1, outputs.rows, tile.rows)
    cols, left = _read_axis(window.cols, owned.grid.cols > 1, outputs.cols, tile.cols)
    strip_inputs = (Box(rows, cols),)
    return InteriorSplit(
        outputs, EMPTY_BOX, EMPTY_BOX, (0, 0), (outputs,), strip_inputs, (top, left)
    )


def window_transfers(window: Window2d, owned: Partition, produced: Partition) -> Transfers:
    """Return the transfers of halos: each rank gets the pixels that its outputs read."""
    needs = (window.find_inputs(produced.tile(rank)) for rank in range(owned.size))
    return Transfers(owned, tuple(need.intersect(owned.image) for need in needs))


@dataclass(frozen=True, slots=True)
class _AxisSplit:
    inner: Interval
    crop: Interval
    padding: int


def _split_axis(window: Window, divided: bool, outputs: Interval, tile: Interval) -> _AxisSplit:
    if not divided:
        return _AxisSplit(outputs, tile, window.padding)
    first, last = window.find_outputs(tile)
    inner = max(first, outputs[0]), min(last, outputs[1])
    return _AxisSplit(inner, window.find_inputs(inner), 0)


def _read_axis(
    window: Window, divided: bool, outputs: Interval, tile: Interval
) -> tuple[Interval, int]:
    """Return the pixels read along an axis, and the operator's own padding."""
    first, last = window.find_inputs(outputs)
    if divided:
        return (first, last), 0
    # An output may read only padding, but an operator needs at least one pixel.
    min_length = max(1, window.span - 2 * window.padding)
    return (tile[0], min(tile[1], max(last, min_length))), window.padding


def find_own_read(window: Window2d, split: InteriorSplit, tile: Box) -> Box:
    """Return the pixels that a whole split reads if it reads only this rank's tile.

    They include pixels at the end that the stride skips: cutting them off would cost a copy.
    """
    (read,) = split.strip_inputs
    if read.empty:
        return read
    top, left = split.strip_padding
    return Box(
        _extend_to_end(window.rows, read.rows, top, tile.rows),
        _extend_to_end(window.cols, read.cols, left, tile.cols),
    )


def _extend_to_end(window: Window, read: Interval, padding: int, tile: Interval) -> Interval:
    def outputs(last: int) -> int:
        return (last - read[0] + 2 * padding - window.span) // window.stride

    return (read[0], tile[1]) if outputs(tile[1]) == outputs(read[1]) else read


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
