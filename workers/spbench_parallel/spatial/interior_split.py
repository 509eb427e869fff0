"""Interior split: outputs of a tile that need no halo, and the strips around them that do.

The other way is to compute all outputs at once, from the tile with its halo: `whole_split_of`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Interval, part_bounds
from spbench_core.layout.window import Window, Window2d

MIN_INNER_SHARE = 0.5
"""The least share of inner outputs; with less, all are computed at once."""
MAX_BANDS = 4
MIN_BAND = 32
"""Rows, or columns, of the narrowest band."""


@dataclass(frozen=True, slots=True)
class InteriorSplit:
    """A rank's outputs in parts: inner ones from its tile alone, the others in strips with halos.

    Attributes:
        outputs: The outputs of this rank.
        inner: The outputs that are computed from the tile alone; empty where that is not worth it.
        crop: The pixels of the tile that the inner outputs read.
        padding: Rows and columns that the operator itself adds around the crop: along an axis that
            is not divided, and so needs no neighbours, its own padding.
        strips: The other outputs, as boxes that do not overlap.
        reads: The pixels that each strip reads, its halo among them.
        strip_padding: Rows and columns that the operator adds around these.
    """

    outputs: Box
    inner: Box
    crop: Box
    padding: tuple[int, int]
    strips: tuple[Box, ...]
    reads: tuple[Box, ...]
    strip_padding: tuple[int, int] = (0, 0)

    def bands(self, window: Window2d) -> tuple[Band, ...]:
        """Return the inner outputs in bands: between two of them, MPI can make progress."""
        if self.inner.empty:
            return ()
        # Padding would come into every band: an axis that the operator pads itself stays whole.
        boxes = [self.inner]
        if self.padding[0] == 0:
            boxes = [Box(band, self.inner.cols) for band in _cut(self.inner.rows)]
        elif self.padding[1] == 0:
            boxes = [Box(self.inner.rows, band) for band in _cut(self.inner.cols)]
        return tuple(Band(box, self._crop_of(box, window)) for box in boxes)

    def _crop_of(self, box: Box, window: Window2d) -> Box:
        whole_rows = box.rows == self.inner.rows
        whole_cols = box.cols == self.inner.cols
        return Box(
            self.crop.rows if whole_rows else window.rows.find_inputs(box.rows),
            self.crop.cols if whole_cols else window.cols.find_inputs(box.cols),
        )


@dataclass(frozen=True, slots=True)
class Band:
    """Some of the inner outputs, and the pixels of the tile that they read."""

    outputs: Box
    crop: Box


def _cut(interval: Interval) -> list[Interval]:
    first = interval[0]
    length = interval[1] - interval[0]
    count = max(1, min(MAX_BANDS, length // MIN_BAND))
    cuts = [part_bounds(index, count, length) for index in range(count)]
    return [(first + start, first + end) for start, end in cuts]


def make_interior_split(
    window: Window2d, owned: Partition, produced: Partition, rank: int
) -> InteriorSplit:
    """Return the interior split of a rank's outputs, or the whole one where little is inner."""
    outputs = produced.tile(rank)
    tile = owned.tile(rank)
    rows = _axis(window.rows, owned.grid.rows > 1, outputs.rows, tile.rows)
    cols = _axis(window.cols, owned.grid.cols > 1, outputs.cols, tile.cols)
    inner = Box(rows.inner, cols.inner)
    everything = outputs.height * outputs.width
    if inner.empty or inner.height * inner.width < MIN_INNER_SHARE * everything:
        return make_whole_split(window, owned, produced, rank)
    crop = Box(rows.crop, cols.crop)
    padding = rows.padding, cols.padding
    strips = border_strips(outputs, inner)
    reads = tuple(map(window.find_inputs, strips))
    return InteriorSplit(outputs, inner, crop, padding, strips, reads)


def make_whole_split(
    window: Window2d, owned: Partition, produced: Partition, rank: int
) -> InteriorSplit:
    """Return the split of a rank's outputs that has no inner ones: a single strip, of them all.

    Along an axis that is not divided the operator adds its own padding.
    """
    outputs = produced.tile(rank)
    tile = owned.tile(rank)
    if outputs.empty:
        return InteriorSplit(outputs, EMPTY_BOX, EMPTY_BOX, (0, 0), (outputs,), (EMPTY_BOX,))
    rows, top = _all_at_once(window.rows, owned.grid.rows > 1, outputs.rows, tile.rows)
    cols, left = _all_at_once(window.cols, owned.grid.cols > 1, outputs.cols, tile.cols)
    reads = (Box(rows, cols),)
    return InteriorSplit(outputs, EMPTY_BOX, EMPTY_BOX, (0, 0), (outputs,), reads, (top, left))


def window_transfers(window: Window2d, owned: Partition, produced: Partition) -> Transfers:
    """Return the transfers of halos: they give each rank the pixels that its outputs read."""
    needs = (window.find_inputs(produced.tile(rank)) for rank in range(owned.size))
    return Transfers(owned, tuple(need.intersect(owned.image) for need in needs))


@dataclass(frozen=True, slots=True)
class _Axis:
    inner: Interval
    crop: Interval
    padding: int


def _axis(window: Window, divided: bool, outputs: Interval, tile: Interval) -> _Axis:
    if not divided:
        return _Axis(outputs, tile, window.padding)
    first, last = window.find_outputs(tile)
    inner = max(first, outputs[0]), min(last, outputs[1])
    return _Axis(inner, window.find_inputs(inner), 0)


def _all_at_once(
    window: Window, divided: bool, outputs: Interval, tile: Interval
) -> tuple[Interval, int]:
    """Return what the outputs read along an axis, and how much the operator pads it itself."""
    first, last = window.find_inputs(outputs)
    if divided:
        return (first, last), 0
    # An output may read padding alone, but no operator takes nothing.
    least = max(1, window.span - 2 * window.padding)
    return (tile[0], min(tile[1], max(last, least))), window.padding


def find_own_read(window: Window2d, split: InteriorSplit, tile: Box) -> Box:
    """Return the pixels of a tile that make a whole split's outputs, which read no others.

    What a stride leaves out at the end is among them: to cut it off would be a copy.
    """
    (read,) = split.reads
    if read.empty:
        return read
    top, left = split.strip_padding
    return Box(
        _to_the_end(window.rows, read.rows, top, tile.rows),
        _to_the_end(window.cols, read.cols, left, tile.cols),
    )


def _to_the_end(window: Window, read: Interval, padding: int, tile: Interval) -> Interval:
    def outputs(last: int) -> int:
        return (last - read[0] + 2 * padding - window.span) // window.stride

    return (read[0], tile[1]) if outputs(tile[1]) == outputs(read[1]) else read


def border_strips(outputs: Box, inner: Box) -> tuple[Box, ...]:
    """Return the strips above and below over the full width, then left and right of the inner."""
    strips = (
        Box((outputs.rows[0], inner.rows[0]), outputs.cols),
        Box((inner.rows[1], outputs.rows[1]), outputs.cols),
        Box(inner.rows, (outputs.cols[0], inner.cols[0])),
        Box(inner.rows, (inner.cols[1], outputs.cols[1])),
    )
    return tuple(strip for strip in strips if not strip.empty)


def strips_outside(box: Box, image: Box) -> tuple[Box, ...]:
    """Return the strips of a box that lie beyond the image."""
    if box.empty:
        return ()
    inside = box.intersect(image)
    return (box,) if inside.empty else border_strips(box, inside)
