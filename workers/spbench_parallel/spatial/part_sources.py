"""Sources of the pixels of a part: the rank's tile, received pieces, and the fill.

They are computed once per part, so that an exchange only copies by index.
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
    """Pixels that a part shares with another tensor, as indices into both."""

    part: Index
    other: Index


@dataclass(frozen=True, slots=True)
class PartSources:
    """The sources of the pixels of a part.

    Attributes:
        box: The box of the part.
        covered: Whether every pixel has a source; no output reads the others.
        outside: The strips outside the image.
        own_pixels: The pixels from the rank's tile; None if there are none.
        pieces: The index of a received piece, and the pixels from it.
    """

    box: Box
    covered: bool
    outside: tuple[Index, ...]
    own_pixels: SharedPixels | None
    pieces: tuple[tuple[int, SharedPixels], ...]

    def assemble(
        self, part: torch.Tensor, tile: torch.Tensor, pieces: Sequence[torch.Tensor], fill: float
    ) -> torch.Tensor:
        """Write all pixels of a part, and return it."""
        if not self.covered:
            part.fill_(fill)
        if self.own_pixels is not None:
            part[self.own_pixels.part].copy_(tile[self.own_pixels.other])
        self._fill_outside(part, fill)
        return self._copy_pieces(part, pieces)

    def complete(
        self, padded: TileBuffer, pieces: Sequence[torch.Tensor], fill: float
    ) -> torch.Tensor:
        """Write the halo around a tile into the tile's buffer, and return the buffer.

        The write bypasses autograd's version counter. That is safe, because autograd keeps only the
        values of the tile, which do not change.
        """
        part = padded.buffer.data
        if padded.outside_fill != fill:
            self._fill_outside(part, fill)
            padded.outside_fill = fill
        return self._copy_pieces(part, pieces)

    def _fill_outside(self, part: torch.Tensor, fill: float) -> None:
        for strip in self.outside:
            part[strip].fill_(fill)

    def _copy_pieces(self, part: torch.Tensor, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        for number, shared in self.pieces:
            part[shared.part].copy_(pieces[number][shared.other])
        return part


def find_sources(box: Box, table: Transfers, rank: int) -> PartSources:
    """Return the sources of a part on a rank; pieces are in the order of `Transfers`."""
    image = table.owned.image
    inside = box.intersect(image)
    pieces = [_share_pixels(box, piece.box) for piece in table.list_received(rank)]
    return PartSources(
        box,
        covered=inside.intersect(table.needed[rank]) == inside,
        outside=tuple(box_index(box, strip) for strip in strips_outside(box, image)),
        own_pixels=_share_pixels(box, table.owned.tile(rank)),
        pieces=tuple((index, shared) for index, shared in enumerate(pieces) if shared is not None),
    )


def _share_pixels(box: Box, other: Box) -> SharedPixels | None:
    shared = box.intersect(other)
    return None if shared.empty else SharedPixels(box_index(box, shared), box_index(other, shared))
