"""Sampling of a large tile for the comparison with a reference: its border, and boxes inside.

The reference runs in float64 on the CPU. Where that is too much for a whole tile, its border is
compared all around, so far in that it holds some of all that is joined there, and some boxes
inside, drawn anew in each round. Gradients of the output are zero outside these on all ranks, so
that their effects, sums over all pixels too, can be computed from these alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Window2d
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.pixels import RandomImage
from spbench_workers.benchmarks.halo.reference import compute_reach

MAX_COMPARED_FLOP = 2e10
"""Floating-point operations of a tile's reference in a round, forward and backward, up to which all
values are compared: some seconds of a core."""
MIN_BORDER = 8
"""Rows or columns that a border has at least."""
BOX_SIDE = 64
"""Rows and columns of a box inside."""
BOX_COUNT = 8
"""Boxes that are drawn for a tile and a round; one that meets another is dropped."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The boxes of each rank's tile that are compared, round by round; all ranks draw the same.

    Attributes:
        owned: The tiles of the input.
        produced: The tiles of the output.
        windows: The windows of the layers between.
        seed: Returns the seed for a round and a rank.
        operations: Floating-point operations of a whole tile's reference in a round.
    """

    owned: Partition
    produced: Partition
    windows: Sequence[Window2d]
    seed: Callable[[int, int], int]
    flop: float

    def select_outputs(self, round_: int, rank: int) -> list[Box]:
        """Return the boxes of a rank's outputs that are compared; no two have a pixel in common."""
        rows, cols = self._axes
        border = max(MIN_BORDER, -(-rows[1] // rows[0])), max(MIN_BORDER, -(-cols[1] // cols[0]))
        tile = self.produced.tile(rank)
        draw = random.Random(self.seed(round_, rank))
        return _around(tile, border) + _inside(_without(tile, border), draw)

    def select_inputs(self, round_: int, rank: int) -> list[Box]:
        """Return the boxes of a rank's tile whose gradients are compared.

        They are its border, and the pixels under the outputs that are compared.
        """
        tile = self.owned.tile(rank)
        (rows, cols) = self._axes
        border = max(MIN_BORDER, rows[1]), max(MIN_BORDER, cols[1])
        under = (
            tile.intersect(Box(_times(box.rows, rows[0]), _times(box.cols, cols[0])))
            for box in self.select_outputs(round_, rank)
        )
        return [*_around(tile, border), *(box for box in under if not box.empty)]

    def select_read_boxes(self, round_: int, tile: Box) -> list[Box]:
        """Return boxes of a tile outside which no output that is compared reads, on any rank."""
        rows, cols = self._axes
        boxes = (
            tile.intersect(Box(_read(box.rows, rows), _read(box.cols, cols)))
            for rank in self.produced.ranks
            for box in self.select_outputs(round_, rank)
        )
        return [box for box in boxes if not box.empty]

    def make_gradient(
        self, image: RandomImage, box: Box, round_: int, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return the values of a box of an image that is zero where nothing is compared."""
        values = torch.zeros((image.batch, image.channels, *box.shape), dtype=dtype)
        for rank in self.produced.ranks:
            if self.produced.tile(rank).intersect(box).empty:
                continue
            for one in self.select_outputs(round_, rank):
                shared = one.intersect(box)
                if not shared.empty:
                    view_box(values, box, shared).copy_(image.make_box(shared, round_, dtype))
        return values

    def describe(self, rank: int) -> tuple[str, str]:
        """Return the compared values, and the reason, in words for a choice of the case."""
        return (
            f"borders and boxes, {100.0 * self.compared_share(1, rank):.2g} % of the values",
            f"a tile's reference takes {self.flop:.2g} operations a round, more than "
            f"{MAX_COMPARED_FLOP:.0e}; what halos bring is compared whole",
        )

    def compared_share(self, round_: int, rank: int) -> float:
        """Return the share of a rank's outputs that is compared."""
        tile = self.produced.tile(rank)
        compared = sum(box.height * box.width for box in self.select_outputs(round_, rank))
        return compared / max(1, tile.height * tile.width)

    @property
    def _axes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return stride and reach of all layers together, of rows and of columns."""
        return (
            compute_reach([window.rows for window in self.windows]),
            compute_reach([window.cols for window in self.windows]),
        )


def choose_sampling(
    layers: nn.Module,
    batch: int,
    windows: Sequence[Window2d],
    owned: Partition,
    produced: Partition,
    seed: Callable[[int, int], int],
) -> Sampling | None:
    """Return the sampling of tiles that are too large to be compared whole; None for others."""
    needed = count_flop(layers, batch, windows, owned)
    if needed <= MAX_COMPARED_FLOP:
        return None
    return Sampling(owned, produced, windows, seed, needed)


def count_flop(
    layers: nn.Module, batch: int, windows: Sequence[Window2d], owned: Partition
) -> float:
    """Return the floating-point operations of a tile's reference in a round.

    A convolution is computed forward, and backward for its input and for its parameters.
    """
    total = 0.0
    height = owned.height
    width = owned.width
    convs = [layer for layer in layers.modules() if isinstance(layer, nn.Conv2d)]
    for conv, window in zip(convs, windows, strict=True):
        height, width = window.output_size(height, width)
        total += 6.0 * batch * height * width * conv.weight.numel()
    return total / owned.grid.size


def _around(tile: Box, border: tuple[int, int]) -> list[Box]:
    """Return the border of a tile, of so many rows and columns; all of it where that is most."""
    if tile.empty:
        return []
    inner = _without(tile, border)
    if inner.empty:
        return [tile]
    return [
        Box((tile.rows[0], inner.rows[0]), tile.cols),
        Box((inner.rows[1], tile.rows[1]), tile.cols),
        Box(inner.rows, (tile.cols[0], inner.cols[0])),
        Box(inner.rows, (inner.cols[1], tile.cols[1])),
    ]


def _without(tile: Box, border: tuple[int, int]) -> Box:
    """Return a tile without its border."""
    rows = tile.rows[0] + border[0], tile.rows[1] - border[0]
    return Box(rows, (tile.cols[0] + border[1], tile.cols[1] - border[1]))


def _inside(inner: Box, draw: random.Random) -> list[Box]:
    """Draw boxes that do not overlap."""
    kept: list[Box] = []
    for _ in range(0 if inner.empty else BOX_COUNT):
        box = Box(_drawn(inner.rows, BOX_SIDE, draw), _drawn(inner.cols, BOX_SIDE, draw))
        if all(box.intersect(other).empty for other in kept):
            kept.append(box)
    return kept


def _drawn(within: Interval, length: int, draw: random.Random) -> Interval:
    """Draw an interval of a length, or of all that there is, from another."""
    length = min(length, within[1] - within[0])
    first = draw.randint(within[0], within[1] - length)
    return first, first + length


def _read(outputs: Interval, axis: tuple[int, int]) -> Interval:
    """Return the inputs that outputs read at most, by stride and reach."""
    stride, reach = axis
    return outputs[0] * stride - reach, (outputs[1] - 1) * stride + reach + 1


def _times(interval: Interval, stride: int) -> Interval:
    return interval[0] * stride, interval[1] * stride
