"""Regions of an image whose tiles are on different ranks, fetched by a way of their own.

Nothing of the halo exchange is used: which output reads which pixel is computed here, and pieces go
by one Alltoallv over another communicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.p2p.mpi import mpi_buffer

NONE = Box((0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """A window along one axis, with torch's arguments."""

    kernel: int
    stride: int
    padding: int
    dilation: int = 1

    @property
    def span(self) -> int:
        """Pixels from the first tap to the last."""
        return self.dilation * (self.kernel - 1) + 1

    def readers(self, pixels: Interval, outputs: int) -> Interval:
        """Return the outputs, from the first to the last, that read any of these pixels."""
        first = -((self.span - 1 - self.padding - pixels[0]) // self.stride)
        last = (pixels[1] - 1 + self.padding) // self.stride
        return max(0, first), min(outputs, last + 1)

    def read(self, outputs: Interval) -> Interval:
        """Return the pixels that these outputs read, padding among them."""
        first = outputs[0] * self.stride - self.padding
        return first, (outputs[1] - 1) * self.stride - self.padding + self.span


@dataclass(frozen=True, slots=True)
class Regions:
    """The regions of one operator, by rank.

    Attributes:
        tiles: The pixels that each rank owns.
        made: The outputs that it owns.
        outputs: The outputs that read its pixels, and those that it owns; with a margin, also the
            outputs next to them.
        inputs: All pixels that these read, padding among them.
    """

    tiles: tuple[Box, ...]
    owned_outputs: tuple[Box, ...]
    outputs: tuple[Box, ...]
    inputs: tuple[Box, ...]

    @classmethod
    def from_tiles(
        cls,
        axes: tuple[WindowAxis, WindowAxis],
        tiles: Sequence[Box],
        made: Sequence[Box],
        size: tuple[int, int],
        *,
        margin: int = 0,
    ) -> Regions:
        """Return the regions of a window.

        Args:
            axes: The window along rows and columns.
            tiles: The pixels that each rank owns.
            made: The outputs that each rank owns.
            size: Rows and columns of the whole output.
            margin: Rows and columns of outputs around those that read a rank's pixels.
        """
        rows, cols = axes
        whole = Box((0, size[0]), (0, size[1]))
        outputs: list[Box] = []
        for tile, own in zip(tiles, made, strict=True):
            readers = NONE
            if not tile.empty:
                readers = Box(rows.readers(tile.rows, size[0]), cols.readers(tile.cols, size[1]))
                readers = readers.grow(margin, whole)
            outputs.append(_hull(readers, own))
        inputs = [
            NONE if box.empty else Box(rows.read(box.rows), cols.read(box.cols)) for box in outputs
        ]
        return cls(tuple(tiles), tuple(made), tuple(outputs), tuple(inputs))


def fetch(
    comm: MPI.Intracomm,
    mine: torch.Tensor,
    owned: Sequence[Box],
    wanted: Sequence[Box],
    fill: float = 0.0,
) -> torch.Tensor:
    """Return the wanted box of this rank, in memory of its own.

    All ranks must call it.

    Args:
        comm: The ranks.
        mine: This rank's tile, ``batch x channels x rows x cols``.
        owned: The box of each rank's tile.
        wanted: The box that each rank wants; it may reach beyond the image.
        fill: The value of pixels that no rank owns.
    """
    rank = comm.rank
    here = wanted[comm.rank]
    shape = (*mine.shape[:2], here.height, here.width)
    found = torch.full(shape, fill, dtype=mine.dtype)
    tile = mine.detach().cpu()
    leaving = [NONE if peer == rank else owned[rank].intersect(wanted[peer]) for peer in _all(comm)]
    coming = [NONE if peer == rank else owned[peer].intersect(here) for peer in _all(comm)]
    pieces = [view_box(tile, owned[rank], box).reshape(-1) for box in leaving]
    counts = [mine.shape[0] * mine.shape[1] * box.height * box.width for box in coming]
    sent = torch.cat(pieces)
    received = torch.empty(sum(counts), dtype=mine.dtype)
    size = mine.element_size()
    comm.Alltoallv(
        [mpi_buffer(sent), [size * piece.numel() for piece in pieces], MPI.BYTE],
        [mpi_buffer(received), [size * count for count in counts], MPI.BYTE],
    )
    for box, piece in zip(coming, received.split(counts), strict=True):
        if box.empty:
            continue
        view_box(found, here, box).copy_(piece.view(*mine.shape[:2], box.height, box.width))
    own = owned[rank].intersect(here)
    view_box(found, here, own).copy_(view_box(tile, owned[rank], own))
    return found.to(mine.device)


def view_box(values: torch.Tensor, held: Box, box: Box) -> torch.Tensor:
    """Return a view of a box in a tensor of the box ``held``; empty where the box is."""
    if box.empty:
        return values[:, :, :0, :0]
    (top, _) = held.rows
    (left, _) = held.cols
    rows = slice(box.rows[0] - top, box.rows[1] - top)
    return values[:, :, rows, box.cols[0] - left : box.cols[1] - left]


def _all(comm: MPI.Intracomm) -> range:
    return range(comm.size)


def _hull(one: Box, other: Box) -> Box:
    if one.empty or other.empty:
        return NONE if one.empty and other.empty else (other if one.empty else one)
    return Box(_around(one.rows, other.rows), _around(one.cols, other.cols))


def _around(one: Interval, other: Interval) -> Interval:
    return min(one[0], other[0]), max(one[1], other[1])


@dataclass(frozen=True, slots=True)
class ReferenceMoments:
    """Mean and variance by channel, over all ranks.

    And the number of values of each channel.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: float


def gather_values(comm: MPI.Comm, values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, ``ranks x ...``, in float64 on the host."""
    own = values.detach().double().cpu().contiguous()
    found = torch.empty((comm.size, *own.shape), dtype=torch.float64)
    comm.Allgather([mpi_buffer(own), MPI.BYTE], [mpi_buffer(found), MPI.BYTE])
    return found


def sum_over_ranks(comm: MPI.Comm, values: torch.Tensor) -> torch.Tensor:
    """Return the sum over the ranks. All ranks must call it, and all get the same."""
    if comm.size == 1:
        return values.detach().double().cpu().contiguous()
    return sum_reversed(gather_values(comm, values))


def sum_reversed(values: torch.Tensor) -> torch.Tensor:
    """Return the sum over the first axis, beginning with its last entry."""
    total = torch.zeros_like(values[0])
    for one in reversed(values.unbind()):
        total += one
    return total
