"""Partitions of an image: the pixels that ranks own and exchange.

One table, `Transfers`, describes halo exchange, gathering of tiles and redistribution. Every rank
computes it from the same few numbers, so that ranks never exchange sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spbench_core.layout.tiles import Box, Grid

EMPTY_BOX = Box((0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class Partition:
    """An image of ``height x width`` pixels, cut into the tiles of a grid.

    Attributes:
        grid: The grid.
        height: Rows of pixels.
        width: Columns of pixels.
        ranks: The owner of each tile, row by row, as ranks of the image's communicator.
        size: The size of the communicator. Ranks that do not own a tile have no pixels.
    """

    grid: Grid
    height: int
    width: int
    ranks: tuple[int, ...]
    size: int

    def __post_init__(self) -> None:
        if len(self.ranks) != self.grid.size:
            raise ValueError(f"a grid of {self.grid} has {self.grid.size} tiles, not {self.ranks}")
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"a rank owns two tiles: {self.ranks}")
        if not all(0 <= rank < self.size for rank in self.ranks):
            raise ValueError(f"{self.ranks} are not all ranks of a communicator of {self.size}")

    @classmethod
    def from_grid(
        cls,
        grid: Grid,
        height: int,
        width: int,
        *,
        ranks: Sequence[int] | None = None,
        size: int | None = None,
    ) -> Partition:
        """Return the partition of an image for some ranks, by default 0, 1, and so on."""
        owners = tuple(range(grid.size)) if ranks is None else tuple(ranks)
        return cls(grid, height, width, owners, len(owners) if size is None else size)

    def resize(self, height: int, width: int) -> Partition:
        """Return a partition of an image of another size, with the same grid and ranks."""
        return Partition(self.grid, height, width, self.ranks, self.size)

    @property
    def image(self) -> Box:
        """All pixels."""
        return Box((0, self.height), (0, self.width))

    def tile(self, rank: int) -> Box:
        """Return the pixels that a rank owns; empty for a rank without a tile."""
        if rank not in self.ranks:
            return EMPTY_BOX
        return self.grid.tile(self.ranks.index(rank), self.height, self.width)


@dataclass(frozen=True, slots=True)
class Piece:
    """Pixels that a rank exchanges with another one.

    Attributes:
        peer: The other rank.
        box: The pixels, in coordinates of the whole image.
    """

    peer: int
    box: Box


@dataclass(frozen=True, slots=True)
class Transfers:
    """The messages with which each rank receives the pixels that it needs.

    Attributes:
        owned: The partition of the image before the transfers: the pixels that each rank has.
        needed: The box of the image that each rank needs, including pixels that it has.
    """

    owned: Partition
    needed: tuple[Box, ...]

    def list_received(self, rank: int) -> tuple[Piece, ...]:
        """Return the pieces that a rank receives, in the order of their owners."""
        return self._list_pieces(rank, lambda peer: self._find_box(peer, rank))

    def list_sent(self, rank: int) -> tuple[Piece, ...]:
        """Return the pieces that a rank sends, in the order of the receivers."""
        return self._list_pieces(rank, lambda peer: self._find_box(rank, peer))

    def _list_pieces(self, rank: int, find_box: Callable[[int], Box]) -> tuple[Piece, ...]:
        pieces = (Piece(peer, find_box(peer)) for peer in range(self.owned.size) if peer != rank)
        return tuple(piece for piece in pieces if not piece.box.empty)

    def _find_box(self, source: int, target: int) -> Box:
        return self.needed[target].intersect(self.owned.tile(source))


def make_halo_transfers(owned: Partition, halo_len: int) -> Transfers:
    """Return the transfers of halos of ``halo_len`` pixels around each tile.

    A halo ends at the border of the image. If it is wider than a tile, pieces come from more
    distant ranks than the neighbours.
    """
    tiles = (owned.tile(rank) for rank in range(owned.size))
    padded = (tile if tile.empty else tile.grow(halo_len, owned.image) for tile in tiles)
    return Transfers(owned, tuple(padded))


def make_redistribution(owned: Partition, target: Partition) -> Transfers:
    """Return the transfers that move an image from one partition to another.

    Raises:
        ValueError: The images or the communicators of the two partitions differ in size.
    """
    if (owned.height, owned.width, owned.size) != (target.height, target.width, target.size):
        raise ValueError(
            f"an image of {owned.height}x{owned.width} pixels on {owned.size} ranks cannot become "
            f"one of {target.height}x{target.width} on {target.size}"
        )
    return Transfers(owned, tuple(target.tile(rank) for rank in range(target.size)))
