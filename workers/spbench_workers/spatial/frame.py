"""Which of a tile's outputs need no neighbour, and which strips around them do."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_workers.layout import Box, Interval
from spbench_workers.spatial.partition import Partition, Transfers
from spbench_workers.window import Window, Window2d

LEAST_INNER_SHARE = 0.5
"""With less than this inside, all outputs are computed at once, from one gathered part."""


@dataclass(frozen=True, slots=True)
class Frame:
    """How a rank computes its outputs: the inner ones from its tile alone, the others in strips.

    Attributes:
        outputs: The outputs of this rank.
        inner: Those that are computed from the tile alone; empty where that is not worth it.
        crop: The pixels of the tile that the inner outputs read.
        padding: Rows and columns that the operator itself adds around the crop. An axis that is
            not divided needs no neighbours: there the operator pads as it would alone.
        strips: The other outputs, as boxes that do not overlap.
    """

    outputs: Box
    inner: Box
    crop: Box
    padding: tuple[int, int]
    strips: tuple[Box, ...]


def frame_of(window: Window2d, owned: Partition, produced: Partition, rank: int) -> Frame:
    """Return how a rank computes its outputs."""
    outputs, tile = produced.tile(rank), owned.tile(rank)
    rows = _axis(window.rows, owned.grid.rows > 1, outputs.rows, tile.rows)
    cols = _axis(window.cols, owned.grid.cols > 1, outputs.cols, tile.cols)
    inner = Box(rows.inner, cols.inner)
    everything = outputs.height * outputs.width
    if inner.empty or inner.height * inner.width < LEAST_INNER_SHARE * everything:
        return Frame(outputs, Box((0, 0), (0, 0)), Box((0, 0), (0, 0)), (0, 0), (outputs,))
    crop = Box(rows.crop, cols.crop)
    padding = rows.padding, cols.padding
    return Frame(outputs, inner, crop, padding, around(outputs, inner))


def halo_of(window: Window2d, owned: Partition, produced: Partition) -> Transfers:
    """Return the transfers that give each rank what its outputs read."""
    needs = (window.need(produced.tile(rank)) for rank in range(owned.size))
    return Transfers(owned, tuple(need.intersect(owned.image) for need in needs))


@dataclass(frozen=True, slots=True)
class _Axis:
    inner: Interval
    crop: Interval
    padding: int


def _axis(window: Window, divided: bool, outputs: Interval, tile: Interval) -> _Axis:
    if not divided:
        return _Axis(outputs, tile, window.padding)
    first, last = window.inside(tile)
    inner = max(first, outputs[0]), min(last, outputs[1])
    return _Axis(inner, window.need(inner), 0)


def around(outputs: Box, inner: Box) -> tuple[Box, ...]:
    """Return the strips above and below over the full width, then left and right of the inner."""
    strips = (
        Box((outputs.rows[0], inner.rows[0]), outputs.cols),
        Box((inner.rows[1], outputs.rows[1]), outputs.cols),
        Box(inner.rows, (outputs.cols[0], inner.cols[0])),
        Box(inner.rows, (inner.cols[1], outputs.cols[1])),
    )
    return tuple(strip for strip in strips if not strip.empty)
