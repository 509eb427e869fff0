"""Partitions of an image: the pixels that each rank owns, and those that ranks send each other.

One table, `Transfers`, describes halo exchange, gathering of tiles and redistribution alike. Every
rank computes it from the same few numbers, so that no size is ever asked of another rank.
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
        ranks: The owner of each tile, row by row: ranks of the communicator that shares the image.
        size: Ranks of that communicator. Those that are no owner have no pixels.
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
        """Cut an image for these ranks; for ranks 0, 1, ... where none are named."""
        owners = tuple(range(grid.size)) if ranks is None else tuple(ranks)
        return cls(grid, height, width, owners, len(owners) if size is None else size)

    def resize(self, height: int, width: int) -> Partition:
        """Return the same tiles of the same ranks over an image of another size."""
        return Partition(self.grid, height, width, self.ranks, self.size)

    @property
    def image(self) -> Box:
        """All pixels."""
        return Box((0, self.height), (0, self.width))

    def tile(self, rank: int) -> Box:
        """Return the pixels that a rank owns; none for a rank without a tile."""
        if rank not in self.ranks:
            return EMPTY_BOX
        return self.grid.tile(self.ranks.index(rank), self.height, self.width)


@dataclass(frozen=True, slots=True)
class Piece:
    """Pixels that go between this rank and a ``peer``; ``box`` is in pixels of the image."""

    peer: int
    box: Box


@dataclass(frozen=True, slots=True)
class Transfers:
    """Transfers of pixels: the messages by which each rank gets the box of the image it needs."""

    owned: Partition
    needed: tuple[Box, ...]

    def list_received(self, rank: int) -> tuple[Piece, ...]:
        """Return the pieces that a rank gets from others, in the order of their owners."""
        return self._pieces(rank, lambda peer: self._piece(peer, rank))

    def list_sent(self, rank: int) -> tuple[Piece, ...]:
        """Return the pieces that a rank sends to others, in the order of the receivers."""
        return self._pieces(rank, lambda peer: self._piece(rank, peer))

    def _pieces(self, rank: int, box_of: Callable[[int], Box]) -> tuple[Piece, ...]:
        pieces = (Piece(peer, box_of(peer)) for peer in range(self.owned.size) if peer != rank)
        return tuple(piece for piece in pieces if not piece.box.empty)

    def _piece(self, source: int, target: int) -> Box:
        return self.needed[target].intersect(self.owned.tile(source))


def halo_transfers(owned: Partition, halo_len: int) -> Transfers:
    """Return the transfers that give each tile ``halo_len`` pixels beyond each of its sides.

    The halo never reaches beyond the image. Where tiles are smaller than it, pieces come from
    further ranks than the next ones.
    """
    tiles = (owned.tile(rank) for rank in range(owned.size))
    grown = (tile if tile.empty else tile.grow(halo_len, owned.image) for tile in tiles)
    return Transfers(owned, tuple(grown))


def redistribution(owned: Partition, wanted: Partition) -> Transfers:
    """Return the transfers that bring an image from one partition to another.

    Raises:
        ValueError: The two are not of one image and one communicator.
    """
    if (owned.height, owned.width, owned.size) != (wanted.height, wanted.width, wanted.size):
        raise ValueError(
            f"an image of {owned.height}x{owned.width} pixels on {owned.size} ranks cannot become "
            f"one of {wanted.height}x{wanted.width} on {wanted.size}"
        )
    return Transfers(owned, tuple(wanted.tile(rank) for rank in range(wanted.size)))
