"""Fetches of boxes of an image, with gradients sent back to the owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from spbench_core.layout.partition import EMPTY_BOX, Transfers
from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.spatial.gather_cache import GatherCache
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling

RankBox = Callable[[int], Box]
"""Returns the box that a rank needs."""


class FetchedBox:
    """The fetch of a box of an image for each rank.

    All ranks must call it, and backward, in the same order.

    Args:
        tiling: The tiles of the image.
        rank_box: The box of each rank; it may reach beyond the image.
        fill: The value outside the image.

    Attributes:
        box: The box of this rank.
    """

    def __init__(self, tiling: Tiling, rank_box: RankBox, fill: float = 0.0) -> None:
        image_tiles = tiling.partition
        self._tiling = tiling
        box_by_rank = [rank_box(rank) for rank in range(tiling.comm.size)]
        boxes_in_image = (needed_box.intersect(image_tiles.image) for needed_box in box_by_rank)
        transfers = Transfers(
            image_tiles, tuple(EMPTY_BOX if box.empty else box for box in boxes_in_image)
        )
        self.box = box_by_rank[tiling.comm.rank]
        self._gathers = GatherCache(tiling, transfers, [self.box], fill)

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
    """An operator over tiles that fetches the pixels that its outputs read.

    Attributes:
        fetches: Its fetches.
    """

    fetches: tuple[FetchedBox, ...] = ()

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for fetch in self.fetches:
            fetch.free()


class PaddedBox:
    """The fetch of a box of a padded image for each rank, with any kind of padding.

    Args:
        tiling: The tiles of the image.
        rank_box: The box of each rank in coordinates of the image. Pixels outside are padding.
        mode: ``constant``, ``reflect``, ``replicate`` or ``circular``, like torch's ``pad``.
        value: The value of constant padding.
    """

    def __init__(
        self, tiling: Tiling, rank_box: RankBox, mode: str = "constant", value: float = 0.0
    ) -> None:
        image = tiling.partition.image
        self._box = rank_box(tiling.comm.rank)
        self._mode = mode
        self._image_sides = image.height, image.width
        if mode == "constant":
            self._fetches = {(0, 0): FetchedBox(tiling, rank_box, value)}
            return
        part_indices = range(3 if mode == "circular" else 1)
        self._fetches = {
            (row, col): FetchedBox(tiling, self._make_part_box_function(rank_box, row, col))
            for row in part_indices
            for col in part_indices
            if any(
                not self._make_part_box_function(rank_box, row, col)(rank).empty
                for rank in _ranks(tiling)
            )
        }

    @property
    def fetches(self) -> tuple[FetchedBox, ...]:
        """Its fetches, in order."""
        return tuple(self._fetches.values())

    def fetch(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's box, ``batch x channels x rows x cols``."""
        part_by_key = {key: fetch.fetch(tile) for key, fetch in self._fetches.items()}
        if self._mode == "constant":
            return part_by_key[0, 0]
        if self._mode == "circular":
            # Include empty parts, so that this rank takes part in the exchange of their gradients.
            part_heights, part_widths = (
                [
                    last - first_source
                    for first_source, last in _find_source_intervals(interval, length, self._mode)
                ]
                for interval, length in self._axes()
            )
            rows_of_parts = (
                [
                    part_by_key.get((row, col), tile.new_empty(*tile.shape[:2], height, width))
                    for col, width in enumerate(part_widths)
                ]
                for row, height in enumerate(part_heights)
            )
            return torch.cat([torch.cat(row_parts, 3) for row_parts in rows_of_parts], 2)
        (part,) = part_by_key.values()
        for axis, (interval, length) in enumerate(self._axes()):
            source_indices = _find_source_indices(interval, length, self._mode)
            first_source = min(source_indices, default=0)
            if source_indices != list(range(first_source, first_source + len(source_indices))):
                indices = torch.tensor(
                    [index - first_source for index in source_indices], device=part.device
                )
                part = part.index_select(2 + axis, indices)
        return part

    def _axes(self) -> Iterable[tuple[Interval, int]]:
        return zip((self._box.rows, self._box.cols), self._image_sides, strict=True)

    def _make_part_box_function(self, rank_box: RankBox, row: int, col: int) -> RankBox:
        """Return the source box of one part of each rank's box."""

        def find_part_box(rank: int) -> Box:
            box = rank_box(rank)
            rows, cols = (
                _find_source_intervals(interval, length, self._mode)[index]
                for interval, length, index in zip(
                    (box.rows, box.cols), self._image_sides, (row, col), strict=True
                )
            )
            return Box(rows, cols)

        return find_part_box


def _ranks(tiling: Tiling) -> range:
    return range(tiling.comm.size)


def _find_source_intervals(interval: Interval, length: int, mode: str) -> list[Interval]:
    """Return the source intervals of an interval: one, or three if circular."""
    first, last = interval
    if mode == "circular":
        return [
            (max(first + length, 0), min(last, 0) + length) if first < 0 else (0, 0),
            (max(first, 0), max(min(last, length), max(first, 0))),
            (max(first, length) - length, last - length) if last > length else (0, 0),
        ]
    source_indices = _find_source_indices(interval, length, mode)
    return [(min(source_indices), max(source_indices) + 1) if source_indices else (0, 0)]


def _find_source_indices(interval: Interval, length: int, mode: str) -> list[int]:
    """Return the source index of each position of an interval."""
    last_pixel = length - 1
    if mode == "replicate":
        return [min(max(position, 0), last_pixel) for position in range(*interval)]
    return [last_pixel - abs(last_pixel - abs(position)) for position in range(*interval)]
