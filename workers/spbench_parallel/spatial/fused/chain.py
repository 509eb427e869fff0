"""Boxes along a chain of layers that exchanges once: the pixels that a rank computes of each layer.

Going back from the outputs that a rank owns, every layer needs a box of its input. A box is not cut
at the image's border: pixels beyond are padding of one layer or another. An axis that is not
divided needs no neighbours: along it every layer pads as it would alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Window, Window2d


@dataclass(frozen=True, slots=True)
class ChainLayer:
    """One layer of a chain.

    Attributes:
        owned: The tiles of its input.
        window: None for a layer that works pixel by pixel.
        statistics: Whether it takes statistics, and so reads all pixels that the rank owns.
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
        """Return the box of the input that a rank computes these outputs from."""
        if self.statistics:
            return hull(outputs, self.owned.tile(rank))
        if self.window is None:
            return outputs
        if outputs.empty:
            return EMPTY_BOX
        owned = self.owned
        return Box(
            _need(self.window.rows, outputs.rows, owned.grid.rows, owned.height),
            _need(self.window.cols, outputs.cols, owned.grid.cols, owned.width),
        )


def chain_boxes(links: Sequence[ChainLayer], produced: Partition, rank: int) -> tuple[Box, ...]:
    """Return the box of each layer's input that a rank works on, and last the outputs it owns."""
    boxes = [produced.tile(rank)]
    for link in reversed(links):
        boxes.append(link.need(boxes[-1], rank))
    return tuple(reversed(boxes))


def chain_transfers(links: Sequence[ChainLayer], produced: Partition) -> Transfers:
    """Return the transfers that give each rank all pixels that the chain reads, in one exchange."""
    owned = links[0].owned
    needs = (chain_boxes(links, produced, rank)[0] for rank in range(owned.size))
    return Transfers(owned, tuple(need.intersect(owned.image) for need in needs))


def redundant_share(links: Sequence[ChainLayer], produced: Partition) -> float:
    """Return the redundant share of computation: 0.1 is a tenth more than the ranks own.

    It counts the outputs of layers with a window, those beyond the image among them. It
    is below 0 where a layer leaves out pixels that no later layer reads.
    """
    results = [*(link.owned for link in links[1:]), produced]
    ranks = [chain_boxes(links, produced, rank) for rank in range(produced.size)]
    windowed = [index for index, link in enumerate(links) if link.window is not None]
    computed = sum(_area(boxes[index + 1]) for boxes in ranks for index in windowed)
    return computed / sum(_area(results[index].image) for index in windowed) - 1.0


def _need(window: Window, outputs: Interval, tiles: int, length: int) -> Interval:
    return (0, length) if tiles == 1 else window.find_inputs(outputs)


def hull(a: Box, b: Box) -> Box:
    """Return the smallest box that holds both."""
    if a.empty or b.empty:
        return b if a.empty else a
    rows = zip(a.rows, b.rows, strict=True)
    cols = zip(a.cols, b.cols, strict=True)
    (top, bottom) = rows
    (left, right) = cols
    return Box((min(top), max(bottom)), (min(left), max(right)))


def _area(box: Box) -> int:
    return box.height * box.width
