"""Boxes along a chain of layers that exchanges once.

From the outputs that a rank owns backward, every layer needs a box of its input. A box is not cut
at the image border: pixels outside are padding of one of the layers. Along an undivided axis there
are no neighbours, and every layer adds its own padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Window, Window2d


@dataclass(frozen=True, slots=True)
class ChainLayer:
    """A layer of a chain.

    Attributes:
        input_tiles: The tiles of its input.
        window: None for a pixelwise layer.
        statistics: Whether it computes statistics, and therefore reads all pixels that the rank
            owns.
    """

    input_tiles: Partition
    window: Window2d | None = None
    statistics: bool = False

    @property
    def padding(self) -> tuple[int, int]:
        """Rows and columns that the layer itself adds around its input."""
        if self.window is None:
            return 0, 0
        grid = self.input_tiles.grid
        return (
            self.window.rows.padding if grid.rows == 1 else 0,
            self.window.cols.padding if grid.cols == 1 else 0,
        )

    def find_input_box(self, output_box: Box, rank: int) -> Box:
        """Return the input box from which a rank computes outputs."""
        if self.statistics:
            return hull(output_box, self.input_tiles.tile(rank))
        if self.window is None:
            return output_box
        if output_box.empty:
            return EMPTY_BOX
        input_tiles = self.input_tiles
        return Box(
            _find_input_interval(
                self.window.rows, output_box.rows, input_tiles.grid.rows, input_tiles.height
            ),
            _find_input_interval(
                self.window.cols, output_box.cols, input_tiles.grid.cols, input_tiles.width
            ),
        )


def compute_chain_boxes(
    chain: Sequence[ChainLayer], output_tiles: Partition, rank: int
) -> tuple[Box, ...]:
    """Return the input box of each layer on a rank, and last its owned outputs."""
    boxes = [output_tiles.tile(rank)]
    for layer in reversed(chain):
        boxes.append(layer.find_input_box(boxes[-1], rank))
    return tuple(reversed(boxes))


def compute_chain_transfers(chain: Sequence[ChainLayer], output_tiles: Partition) -> Transfers:
    """Return the transfers of all pixels that the chain reads, in one exchange."""
    input_tiles = chain[0].input_tiles
    input_boxes = (
        compute_chain_boxes(chain, output_tiles, rank)[0] for rank in range(input_tiles.size)
    )
    return Transfers(
        input_tiles, tuple(input_box.intersect(input_tiles.image) for input_box in input_boxes)
    )


def compute_redundant_share(chain: Sequence[ChainLayer], output_tiles: Partition) -> float:
    """Return the redundant computation: 0.1 is a tenth more than the ranks own.

    It counts the outputs of layers with a window, including those outside the image. It is negative
    if a layer skips pixels that no later layer reads.
    """
    tiles_by_layer = [*(layer.input_tiles for layer in chain[1:]), output_tiles]
    boxes_by_rank = [
        compute_chain_boxes(chain, output_tiles, rank) for rank in range(output_tiles.size)
    ]
    windowed_indices = [index for index, layer in enumerate(chain) if layer.window is not None]
    computed_outputs = sum(
        _area(boxes[index + 1]) for boxes in boxes_by_rank for index in windowed_indices
    )
    return (
        computed_outputs / sum(_area(tiles_by_layer[index].image) for index in windowed_indices)
        - 1.0
    )


def _find_input_interval(
    window: Window, outputs: Interval, tile_count: int, length: int
) -> Interval:
    return (0, length) if tile_count == 1 else window.find_inputs(outputs)


def hull(a: Box, b: Box) -> Box:
    """Return the smallest box that contains both."""
    if a.empty or b.empty:
        return b if a.empty else a
    rows = zip(a.rows, b.rows, strict=True)
    cols = zip(a.cols, b.cols, strict=True)
    (top, bottom) = rows
    (left, right) = cols
    return Box((min(top), max(bottom)), (min(left), max(right)))


def _area(box: Box) -> int:
    return box.height * box.width
