"""Sources of the pixels of a part: the rank's tile, received pieces, and the fill.

They are computed once per part, so that an exchange only copies by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from spbench_core.layout.partition import Transfers
from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.exchange import Index, make_box_index
from spbench_parallel.spatial.interior_split import strips_outside
from spbench_parallel.spatial.tile_buffer import TileBuffer


@dataclass(frozen=True, slots=True)
class SharedPixels:
    """Pixels that a part shares with another tensor, as indices into both."""

    part_index: Index
    other_index: Index


@dataclass(frozen=True, slots=True)
class PartSources:
    """The sources of the pixels of a part.

    Attributes:
        box: The box of the part.
        is_covered: Whether every pixel has a source; no output reads the others.
        outside_indices: The strips outside the image.
        own_pixels: The pixels from the rank's tile; None if there are none.
        pieces: The index of a received piece, and the pixels from it.
    """

    box: Box
    is_covered: bool
    outside_indices: tuple[Index, ...]
    own_pixels: SharedPixels | None
    pieces: tuple[tuple[int, SharedPixels], ...]

    def assemble(
        self, part: torch.Tensor, tile: torch.Tensor, pieces: Sequence[torch.Tensor], fill: float
    ) -> torch.Tensor:
        """Write all pixels of a part, and return it."""
        if not self.is_covered:
            part.fill_(fill)
        if self.own_pixels is not None:
            part[self.own_pixels.part_index].copy_(tile[self.own_pixels.other_index])
        self._fill_outside(part, fill)
        return self._copy_pieces(part, pieces)

    def complete(
        self, tile_buffer: TileBuffer, pieces: Sequence[torch.Tensor], fill: float
    ) -> torch.Tensor:
        """Write the halo around a tile into the tile's buffer, and return the buffer.

        The write bypasses autograd's version counter. That is safe, because autograd keeps only the
        values of the tile, which do not change.
        """
        part = tile_buffer.buffer.data
        if tile_buffer.outside_fill != fill:
            self._fill_outside(part, fill)
            tile_buffer.outside_fill = fill
        return self._copy_pieces(part, pieces)

    def _fill_outside(self, part: torch.Tensor, fill: float) -> None:
        for strip_index in self.outside_indices:
            part[strip_index].fill_(fill)

    def _copy_pieces(self, part: torch.Tensor, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        for piece_index, shared in self.pieces:
            part[shared.part_index].copy_(pieces[piece_index][shared.other_index])
        return part


def find_sources(box: Box, transfers: Transfers, rank: int) -> PartSources:
    """Return the sources of a part on a rank; pieces are in the order of `Transfers`."""
    image = transfers.owned.image
    inside = box.intersect(image)
    shared_by_piece = [_share_pixels(box, piece.box) for piece in transfers.list_received(rank)]
    return PartSources(
        box,
        is_covered=inside.intersect(transfers.needed[rank]) == inside,
        outside_indices=tuple(make_box_index(box, strip) for strip in strips_outside(box, image)),
        own_pixels=_share_pixels(box, transfers.owned.tile(rank)),
        pieces=tuple(
            (index, shared) for index, shared in enumerate(shared_by_piece) if shared is not None
        ),
    )


def _share_pixels(box: Box, other: Box) -> SharedPixels | None:
    shared = box.intersect(other)
    return (
        None
        if shared.empty
        else SharedPixels(make_box_index(box, shared), make_box_index(other, shared))
    )
