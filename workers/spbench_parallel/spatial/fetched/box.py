"""Fetches of boxes of an image, with gradients sent back to the owners of the pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from spbench_core.layout.partition import EMPTY_BOX, Transfers
from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.spatial.gather import GatherCache
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling

RankBox = Callable[[int], Box]
"""Returns the box that a rank needs."""


class FetchedBox:
    """The fetch of a box of an image for each rank.

    All ranks must call it, and backward, in the same order.

    Args:
        tiling: The tiles of the image.
        box_of: The box of each rank; it may reach beyond the image.
        fill: The value outside the image.

    Attributes:
        box: That of this rank.
    """

    def __init__(self, tiling: Tiling, box_of: RankBox, fill: float = 0.0) -> None:
        owned = tiling.partition
        self._tiling = tiling
        needs = [box_of(rank) for rank in range(tiling.comm.size)]
        inside = (need.intersect(owned.image) for need in needs)
        table = Transfers(owned, tuple(EMPTY_BOX if one.empty else one for one in inside))
        self.box = needs[tiling.comm.rank]
        self._gathers = GatherCache(tiling, table, [self.box], fill)

    def fetch(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's box, ``batch x channels x rows x cols``."""
        check_tile(self._tiling, tile)
        gather = self._gathers.get(tile)
        (part,) = gather.finish(gather.start(tile))
        return part

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        self._gathers.free()


class FetchingOperator(nn.Module):
    """An operator over tiles that fetches what its outputs read.

    Attributes:
        fetches: Its fetches.
    """

    fetches: tuple[FetchedBox, ...] = ()

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for fetch in self.fetches:
            fetch.free()


class PaddedBox:
    """The fetch of a box of a padded image for each rank, whatever it is padded with.

    Args:
        tiling: The tiles of the image.
        box_of: The box of each rank, in places of the image: those outside are padding.
        mode: ``constant``, ``reflect``, ``replicate`` or ``circular``, as of torch's ``pad``.
        value: The padding, if it is constant.
    """

    def __init__(
        self, tiling: Tiling, box_of: RankBox, mode: str = "constant", value: float = 0.0
    ) -> None:
        image = tiling.partition.image
        self._box = box_of(tiling.comm.rank)
        self._mode = mode
        self._sides = image.height, image.width
        if mode == "constant":
            self._fetches = {(0, 0): FetchedBox(tiling, box_of, value)}
            return
        parts = range(3 if mode == "circular" else 1)
        self._fetches = {
            (row, col): FetchedBox(tiling, self._part_of(box_of, row, col))
            for row in parts
            for col in parts
            if any(not self._part_of(box_of, row, col)(rank).empty for rank in _ranks(tiling))
        }

    @property
    def fetches(self) -> tuple[FetchedBox, ...]:
        """Its fetches, in their order."""
        return tuple(self._fetches.values())

    def fetch(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's box, ``batch x channels x rows x cols``."""
        found = {key: fetch.fetch(tile) for key, fetch in self._fetches.items()}
        if self._mode == "constant":
            return found[0, 0]
        if self._mode == "circular":
            # Empty parts too: their gradients are exchanged as those of other ranks are.
            rows, cols = (
                [last - first for first, last in _inside(interval, length, self._mode)]
                for interval, length in self._axes()
            )
            lines = (
                [
                    found.get((row, col), tile.new_empty(*tile.shape[:2], height, width))
                    for col, width in enumerate(cols)
                ]
                for row, height in enumerate(rows)
            )
            return torch.cat([torch.cat(line, 3) for line in lines], 2)
        (part,) = found.values()
        for axis, (interval, length) in enumerate(self._axes()):
            sources = _sources(interval, length, self._mode)
            first = min(sources, default=0)
            if sources != list(range(first, first + len(sources))):
                places = torch.tensor([one - first for one in sources], device=part.device)
                part = part.index_select(2 + axis, places)
        return part

    def _axes(self) -> Iterable[tuple[Interval, int]]:
        return zip((self._box.rows, self._box.cols), self._sides, strict=True)

    def _part_of(self, box_of: RankBox, row: int, col: int) -> RankBox:
        """Return which pixels of the image a part of each rank's box is made of."""

        def part(rank: int) -> Box:
            box = box_of(rank)
            rows, cols = (
                _inside(interval, length, self._mode)[at]
                for interval, length, at in zip(
                    (box.rows, box.cols), self._sides, (row, col), strict=True
                )
            )
            return Box(rows, cols)

        return part


def _ranks(tiling: Tiling) -> range:
    return range(tiling.comm.size)


def _inside(interval: Interval, length: int, mode: str) -> list[Interval]:
    """Return the pixels of an axis that an interval is made of: one interval, or three of them."""
    first, last = interval
    if mode == "circular":
        return [
            (max(first + length, 0), min(last, 0) + length) if first < 0 else (0, 0),
            (max(first, 0), max(min(last, length), max(first, 0))),
            (max(first, length) - length, last - length) if last > length else (0, 0),
        ]
    sources = _sources(interval, length, mode)
    return [(min(sources), max(sources) + 1) if sources else (0, 0)]


def _sources(interval: Interval, length: int, mode: str) -> list[int]:
    """Return the pixel of an axis that stands at each place of an interval."""
    last = length - 1
    if mode == "replicate":
        return [min(max(place, 0), last) for place in range(*interval)]
    return [last - abs(last - abs(place)) for place in range(*interval)]
