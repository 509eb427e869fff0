"""Which pixels go from which rank to which, so that every tile has its halo."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_workers.layout import Box, Grid


@dataclass(frozen=True, slots=True)
class Piece:
    """Pixels that ``source`` has for ``target``; ``box`` is in rows and columns of the image."""

    source: int
    target: int
    box: Box


@dataclass(frozen=True, slots=True)
class HaloTable:
    """The one table that every rank reads its messages from; tile ``t`` belongs to rank ``t``.

    The halo of a tile reaches ``halo_len`` pixels beyond each of its sides, but never beyond the
    image. Where tiles are smaller than that, pieces come from further ranks than the next ones.
    """

    grid: Grid
    height: int
    width: int
    halo_len: int

    @property
    def image(self) -> Box:
        """All pixels."""
        return Box((0, self.height), (0, self.width))

    def tile(self, rank: int) -> Box:
        """Return the pixels that a rank owns."""
        return self.grid.tile(rank, self.height, self.width)

    def padded(self, rank: int) -> Box:
        """Return the pixels that a rank holds after the exchange: its tile and its halo."""
        tile = self.tile(rank)
        return tile if tile.empty else tile.grow(self.halo_len, self.image)

    def piece(self, source: int, target: int) -> Box:
        """Return what goes from one rank to another; empty where they are no neighbours."""
        if source == target:
            return Box((0, 0), (0, 0))
        return self.padded(target).intersect(self.tile(source))

    def received_by(self, rank: int) -> tuple[Piece, ...]:
        """Return the pieces that together are the halo of a rank, in the order of their sources."""
        pieces = (Piece(source, rank, self.piece(source, rank)) for source in range(self.grid.size))
        return tuple(piece for piece in pieces if not piece.box.empty)

    def sent_by(self, rank: int) -> tuple[Piece, ...]:
        """Return the pieces that a rank owes others, in the order of their targets."""
        pieces = (Piece(rank, target, self.piece(rank, target)) for target in range(self.grid.size))
        return tuple(piece for piece in pieces if not piece.box.empty)
