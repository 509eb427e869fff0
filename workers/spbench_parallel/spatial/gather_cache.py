"""Gathers that are created at the first tile of each shape, and reused afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from spbench_core.layout.partition import Transfers
from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.tiling import Tiling


class GatherCache:
    """Gathers of the same boxes, one per shape, number format and device of tiles.

    Args:
        tiling: The tiles of the image.
        transfers: See `Gather`.
        part_boxes: See `Gather`.
        fill: The value outside the image.
        owns_gradients: See `Gather`.
    """

    def __init__(
        self,
        tiling: Tiling,
        transfers: Transfers,
        part_boxes: Sequence[Box],
        fill: float = 0.0,
        *,
        owns_gradients: bool = False,
    ) -> None:
        self._tiling = tiling
        self._transfers = transfers
        self._part_boxes = part_boxes
        self._fill = fill
        self._owns_gradients = owns_gradients
        self._gathers: dict[Any, Gather] = {}

    def __iter__(self) -> Iterator[Gather]:
        return iter(self._gathers.values())

    def get(self, tile: torch.Tensor) -> Gather:
        """Return the gather for tiles like this one. Collective."""
        key = (tile.shape[0], tile.shape[1], tile.dtype, tile.device)
        if key not in self._gathers:
            self._gathers[key] = Gather(
                self._tiling.comm,
                self._transfers,
                self._part_boxes,
                sample=tile,
                fill=self._fill,
                transport=self._tiling.transport,
                owns_gradients=self._owns_gradients,
            )
        return self._gathers[key]

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for gather in self:
            gather.free()
        self._gathers.clear()
