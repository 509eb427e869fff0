"""Sampling of a large tile for the comparison with a reference.

The reference runs in float64 on the CPU. If that takes too long for a whole tile, its border and
some boxes inside are compared. The border is wide enough to contain values of all joined pieces,
and the boxes are drawn again in each round. Output gradients are zero outside these boxes on all
ranks, so that their effects, including sums over all pixels, follow from the boxes.
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


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """The size from which tiles are sampled, and the sizes of the compared boxes.

    Attributes:
        max_compared_flop: The most floating-point operations of a tile's reference per round,
            forward and backward, for which all values are compared: some seconds of a core.
        min_border_pixels: Least rows or columns of a border.
        box_side_pixels: Rows and columns of a box inside the border.
        boxes_per_tile: Boxes drawn per tile and round; a box that overlaps another is dropped.
    """

    max_compared_flop: float = 2e10
    min_border_pixels: int = 8
    box_side_pixels: int = 64
    boxes_per_tile: int = 8


LIMITS = SamplingLimits()
"""The limits of all cases."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The compared boxes of each rank's tile by round, the same on all ranks.

    Attributes:
        owned: The tiles of the input.
        produced: The tiles of the output.
        windows: The windows of the layers between.
        seed: Returns the seed for a round and a rank.
        flop: Floating-point operations of a whole tile's reference per round.
        limits: The sizes of the boxes.
    """

    owned: Partition
    produced: Partition
    windows: Sequence[Window2d]
    seed: Callable[[int, int], int]
    flop: float
    limits: SamplingLimits = LIMITS

    def select_outputs(self, round_: int, rank: int) -> list[Box]:
        """Return the compared boxes of a rank's outputs; they are disjoint."""
        rows, cols = self._axes
        min_pixels = self.limits.min_border_pixels
        border = max(min_pixels, -(-rows[1] // rows[0])), max(min_pixels, -(-cols[1] // cols[0]))
        tile = self.produced.tile(rank)
        draw = random.Random(self.seed(round_, rank))
        inner = _remove_border(tile, border)
        return _border_boxes(tile, border) + _draw_boxes(inner, draw, self.limits)

    def select_inputs(self, round_: int, rank: int) -> list[Box]:
        """Return the boxes of a rank's tile with compared gradients.

        They are its border and the pixels under the compared outputs.
        """
        tile = self.owned.tile(rank)
        (rows, cols) = self._axes
        min_pixels = self.limits.min_border_pixels
        border = max(min_pixels, rows[1]), max(min_pixels, cols[1])
        boxes_of_outputs = (
            tile.intersect(
                Box(_scale_interval(box.rows, rows[0]), _scale_interval(box.cols, cols[0]))
            )
            for box in self.select_outputs(round_, rank)
        )
        return [*_border_boxes(tile, border), *(box for box in boxes_of_outputs if not box.empty)]

    def select_read_boxes(self, round_: int, tile: Box) -> list[Box]:
        """Return boxes of a tile that contain all reads of compared outputs of any rank."""
        rows, cols = self._axes
        boxes = (
            tile.intersect(
                Box(_find_read_interval(box.rows, rows), _find_read_interval(box.cols, cols))
            )
            for rank in self.produced.ranks
            for box in self.select_outputs(round_, rank)
        )
        return [box for box in boxes if not box.empty]

    def make_gradient(
        self, image: RandomImage, box: Box, round_: int, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return a box of an image that is zero outside the compared boxes."""
        values = torch.zeros((image.batch, image.channels, *box.shape), dtype=dtype)
        for rank in self.produced.ranks:
            if self.produced.tile(rank).intersect(box).empty:
                continue
            for output in self.select_outputs(round_, rank):
                compared_part = output.intersect(box)
                if not compared_part.empty:
                    view_box(values, box, compared_part).copy_(
                        image.make_box(compared_part, round_, dtype)
                    )
        return values

    def describe(self, rank: int) -> tuple[str, str]:
        """Return a description of the compared values and the reason, for a choice."""
        return (
            f"borders and boxes, {100.0 * self.compared_share(1, rank):.2g} % of the values",
            f"a tile's reference takes {self.flop:.2g} operations a round, more than "
            f"{self.limits.max_compared_flop:.0e}; what halos bring is compared whole",
        )

    def compared_share(self, round_: int, rank: int) -> float:
        """Return the compared share of a rank's outputs."""
        tile = self.produced.tile(rank)
        compared_pixels = sum(box.height * box.width for box in self.select_outputs(round_, rank))
        return compared_pixels / max(1, tile.height * tile.width)

    @property
    def _axes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Stride and reach of all layers together, for rows and for columns."""
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
    limits: SamplingLimits = LIMITS,
) -> Sampling | None:
    """Return the sampling of tiles too large to be compared completely, or None."""
    flop = count_flop(layers, batch, windows, owned)
    if flop <= limits.max_compared_flop:
        return None
    return Sampling(owned, produced, windows, seed, flop, limits)


def count_flop(
    layers: nn.Module, batch: int, windows: Sequence[Window2d], owned: Partition
) -> float:
    """Return the floating-point operations of a tile's reference per round.

    A convolution is computed forward, and backward for its input and for its parameters.
    """
    total_flop = 0.0
    height = owned.height
    width = owned.width
    convs = [layer for layer in layers.modules() if isinstance(layer, nn.Conv2d)]
    for conv, window in zip(convs, windows, strict=True):
        height, width = window.output_size(height, width)
        total_flop += 6.0 * batch * height * width * conv.weight.numel()
    return total_flop / owned.grid.size


def _border_boxes(tile: Box, border: tuple[int, int]) -> list[Box]:
    """Return the border of a tile, or the whole tile if it has no inside."""
    if tile.empty:
        return []
    inner = _remove_border(tile, border)
    if inner.empty:
        return [tile]
    return [
        Box((tile.rows[0], inner.rows[0]), tile.cols),
        Box((inner.rows[1], tile.rows[1]), tile.cols),
        Box(inner.rows, (tile.cols[0], inner.cols[0])),
        Box(inner.rows, (inner.cols[1], tile.cols[1])),
    ]


def _remove_border(tile: Box, border: tuple[int, int]) -> Box:
    """Return a tile without its border."""
    rows = tile.rows[0] + border[0], tile.rows[1] - border[0]
    return Box(rows, (tile.cols[0] + border[1], tile.cols[1] - border[1]))


def _draw_boxes(inner: Box, draw: random.Random, limits: SamplingLimits) -> list[Box]:
    """Draw boxes that do not overlap."""
    boxes: list[Box] = []
    side = limits.box_side_pixels
    for _ in range(0 if inner.empty else limits.boxes_per_tile):
        box = Box(_draw_interval(inner.rows, side, draw), _draw_interval(inner.cols, side, draw))
        if all(box.intersect(other).empty for other in boxes):
            boxes.append(box)
    return boxes


def _draw_interval(within: Interval, length: int, draw: random.Random) -> Interval:
    """Draw an interval of a length, at most that of ``within``, from ``within``."""
    length = min(length, within[1] - within[0])
    first = draw.randint(within[0], within[1] - length)
    return first, first + length


def _find_read_interval(outputs: Interval, axis: tuple[int, int]) -> Interval:
    """Return the most inputs that outputs can read, by stride and reach."""
    stride, reach = axis
    return outputs[0] * stride - reach, (outputs[1] - 1) * stride + reach + 1


def _scale_interval(interval: Interval, stride: int) -> Interval:
    return interval[0] * stride, interval[1] * stride
