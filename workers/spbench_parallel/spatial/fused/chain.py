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
        owned: The tiles of its input.
        window: None for a pixelwise layer.
        statistics: Whether it computes statistics, and therefore reads all pixels that the rank
            owns.
    """

    owned: Partition
    window: Window2d | None = None
    statistics: bool = False

    @property
    def padding(self) -> tuple[int, int]:
        """Rows and columns that the layer itself adds around its input."""
        if self.window is None:
            return 0, 0
        grid = self.owned.grid
        return (
            self.window.rows.padding if grid.rows == 1 else 0,
            self.window.cols.padding if grid.cols == 1 else 0,
        )

    def need(self, outputs: Box, rank: int) -> Box:
        """Return the input box from which a rank computes outputs."""
        if self.statistics:
            return hull(outputs, self.owned.tile(rank))
        if self.window is None:
            return outputs
        if outputs.empty:
            return EMPTY_BOX
        owned = self.owned
        return Box(
            _need_interval(self.window.rows, outputs.rows, owned.grid.rows, owned.height),
            _need_interval(self.window.cols, outputs.cols, owned.grid.cols, owned.width),
        )


def chain_boxes(links: Sequence[ChainLayer], produced: Partition, rank: int) -> tuple[Box, ...]:
    """Return the input box of each layer on a rank, and last its owned outputs."""
    boxes = [produced.tile(rank)]
    for link in reversed(links):
        boxes.append(link.need(boxes[-1], rank))
    return tuple(reversed(boxes))


def chain_transfers(links: Sequence[ChainLayer], produced: Partition) -> Transfers:
    """Return the transfers of all pixels that the chain reads, in one exchange."""
    owned = links[0].owned
    needs = (chain_boxes(links, produced, rank)[0] for rank in range(owned.size))
    return Transfers(owned, tuple(need.intersect(owned.image) for need in needs))


def redundant_share(links: Sequence[ChainLayer], produced: Partition) -> float:
    """Return the redundant computation: 0.1 is a tenth more than the ranks own.

    It counts the outputs of layers with a window, including those outside the image. It is negative
    if a layer skips pixels that no later layer reads.
    """
    results = [*(link.owned for link in links[1:]), produced]
    ranks = [chain_boxes(links, produced, rank) for rank in range(produced.size)]
    windowed = [index for index, link in enumerate(links) if link.window is not None]
    computed = sum(_area(boxes[index + 1]) for boxes in ranks for index in windowed)
    return computed / sum(_area(results[index].image) for index in windowed) - 1.0


def _need_interval(window: Window, outputs: Interval, tiles: int, length: int) -> Interval:
    return (0, length) if tiles == 1 else window.find_inputs(outputs)


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
