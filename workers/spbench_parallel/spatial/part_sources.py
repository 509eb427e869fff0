"""Sources of a part's pixels: the rank's own tile, received pieces, and the fill beyond the image.

They are worked out once for each part, and then every exchange copies without any box in sight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from spbench_core.layout.partition import Transfers
from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.exchange import Index, box_index
from spbench_parallel.spatial.interior_split import strips_outside
from spbench_parallel.spatial.tile_buffer import TileBuffer


@dataclass(frozen=True, slots=True)
class SharedPixels:
    """Pixels that a part and another tensor have in common, as indices into both."""

    part: Index
    other: Index


@dataclass(frozen=True, slots=True)
class PartSources:
    """The sources of a part's pixels.

    Attributes:
        box: The pixels of the part.
        covered: Whether all of them come from somewhere; else no output reads the others.
        beyond: The strips beyond the image.
        own: The pixels of the rank's own tile; None where there are none.
        pieces: The pixels of received pieces, by the number of the piece.
    """

    box: Box
    covered: bool
    outside: tuple[Index, ...]
    own: SharedPixels | None
    pieces: tuple[tuple[int, SharedPixels], ...]

    def assemble(
        self, part: torch.Tensor, tile: torch.Tensor, pieces: Sequence[torch.Tensor], fill: float
    ) -> torch.Tensor:
        """Write all pixels of a part; return it."""
        if not self.covered:
            part.fill_(fill)
        if self.own is not None:
            part[self.own.part].copy_(tile[self.own.other])
        self._fill_beyond(part, fill)
        return self._put(part, pieces)

    def complete(
        self, padded: TileBuffer, pieces: Sequence[torch.Tensor], fill: float
    ) -> torch.Tensor:
        """Write a tile's halo around it into the buffer that it lies in; return the buffer.

        Autograd counts changes of what it keeps, and what it keeps of the tile does not change: so
        the halo is written behind its back.
        """
        part = padded.buffer.data
        if padded.outside_fill != fill:
            self._fill_beyond(part, fill)
            padded.outside_fill = fill
        return self._put(part, pieces)

    def _fill_beyond(self, part: torch.Tensor, fill: float) -> None:
        for strip in self.outside:
            part[strip].fill_(fill)

    def _put(self, part: torch.Tensor, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        for number, shared in self.pieces:
            part[shared.part].copy_(pieces[number][shared.other])
        return part


def find_sources(box: Box, table: Transfers, rank: int) -> PartSources:
    """Return where a rank's part gets its pixels from; pieces count as `Transfers` orders them."""
    image = table.owned.image
    inside = box.intersect(image)
    pieces = [_shared(box, piece.box) for piece in table.list_received(rank)]
    return PartSources(
        box,
        covered=inside.intersect(table.needed[rank]) == inside,
        outside=tuple(box_index(box, strip) for strip in strips_outside(box, image)),
        own=_shared(box, table.owned.tile(rank)),
        pieces=tuple((at, shared) for at, shared in enumerate(pieces) if shared is not None),
    )


def _shared(box: Box, other: Box) -> SharedPixels | None:
    shared = box.intersect(other)
    return None if shared.empty else SharedPixels(box_index(box, shared), box_index(other, shared))
