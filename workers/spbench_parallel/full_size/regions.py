"""Regions of images on different ranks, and sums over ranks, for references.

The code of halo exchanges is not used here. The pixels that an output reads are computed
separately, and are sent by one Alltoallv over another communicator. Sums are in float64, and go
from the last rank to the first, another order than that of the checked sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.p2p.mpi import mpi_buffer

EMPTY = Box((0, 0), (0, 0))


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

    def find_readers(self, pixels: Interval, outputs: int) -> Interval:
        """Return the range of outputs that read any of these pixels."""
        first_output = -((self.span - 1 - self.padding - pixels[0]) // self.stride)
        last_output = (pixels[1] - 1 + self.padding) // self.stride
        return max(0, first_output), min(outputs, last_output + 1)

    def find_read(self, outputs: Interval) -> Interval:
        """Return the range of pixels that these outputs read, including padding."""
        first_pixel = outputs[0] * self.stride - self.padding
        return first_pixel, (outputs[1] - 1) * self.stride - self.padding + self.span


@dataclass(frozen=True, slots=True)
class Regions:
    """The regions of one operator, by rank.

    Attributes:
        tiles: The pixels that each rank owns.
        owned_outputs: The outputs that it owns.
        outputs: The outputs that read its pixels, and those that it owns. With a margin, also the
            outputs next to them.
        inputs: All pixels that these outputs read, including padding.
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
        owned_outputs: Sequence[Box],
        output_size: tuple[int, int],
        *,
        margin: int = 0,
    ) -> Regions:
        """Return the regions of a window.

        Args:
            axes: The window along rows and columns.
            tiles: The pixels that each rank owns.
            owned_outputs: The outputs that each rank owns.
            output_size: Rows and columns of the whole output.
            margin: Rows and columns of outputs around those that read a rank's pixels.
        """
        rows, cols = axes
        all_outputs = Box((0, output_size[0]), (0, output_size[1]))
        outputs: list[Box] = []
        for tile, own_outputs in zip(tiles, owned_outputs, strict=True):
            readers = EMPTY
            if not tile.empty:
                readers = Box(
                    rows.find_readers(tile.rows, output_size[0]),
                    cols.find_readers(tile.cols, output_size[1]),
                )
                readers = readers.grow(margin, all_outputs)
            outputs.append(_compute_hull(readers, own_outputs))
        inputs = [
            EMPTY if box.empty else Box(rows.find_read(box.rows), cols.find_read(box.cols))
            for box in outputs
        ]
        return cls(tuple(tiles), tuple(owned_outputs), tuple(outputs), tuple(inputs))


def fetch(
    comm: MPI.Intracomm,
    own_tile: torch.Tensor,
    owned_boxes: Sequence[Box],
    requested_boxes: Sequence[Box],
    fill: float = 0.0,
) -> torch.Tensor:
    """Return the requested box of this rank in new memory. All ranks must call it.

    Args:
        comm: The ranks.
        own_tile: This rank's tile, ``batch x channels x rows x cols``.
        owned_boxes: The box of each rank's tile.
        requested_boxes: The box that each rank needs, which may extend beyond the image.
        fill: The value of pixels that no rank owns.
    """
    rank = comm.rank
    peers = range(comm.size)
    own_box = requested_boxes[rank]
    region_shape = (*own_tile.shape[:2], own_box.height, own_box.width)
    region = torch.full(region_shape, fill, dtype=own_tile.dtype)
    tile = own_tile.detach().cpu()

    outgoing = [
        EMPTY if peer == rank else owned_boxes[rank].intersect(requested_boxes[peer])
        for peer in peers
    ]
    incoming = [EMPTY if peer == rank else owned_boxes[peer].intersect(own_box) for peer in peers]
    outgoing_pieces = [view_box(tile, owned_boxes[rank], box).reshape(-1) for box in outgoing]
    incoming_counts = [
        own_tile.shape[0] * own_tile.shape[1] * box.height * box.width for box in incoming
    ]
    send_buffer = torch.cat(outgoing_pieces)
    receive_buffer = torch.empty(sum(incoming_counts), dtype=own_tile.dtype)
    value_bytes = own_tile.element_size()
    comm.Alltoallv(
        [
            mpi_buffer(send_buffer),
            [value_bytes * piece.numel() for piece in outgoing_pieces],
            MPI.BYTE,
        ],
        [mpi_buffer(receive_buffer), [value_bytes * count for count in incoming_counts], MPI.BYTE],
    )

    for box, piece in zip(incoming, receive_buffer.split(incoming_counts), strict=True):
        if box.empty:
            continue
        view_box(region, own_box, box).copy_(piece.view(*own_tile.shape[:2], box.height, box.width))
    local = owned_boxes[rank].intersect(own_box)
    view_box(region, own_box, local).copy_(view_box(tile, owned_boxes[rank], local))
    return region.to(own_tile.device)


def view_box(values: torch.Tensor, extent: Box, box: Box) -> torch.Tensor:
    """Return a view of a box in a tensor of the box ``extent``.

    It is empty for an empty box.
    """
    if box.empty:
        return values[:, :, :0, :0]
    (top, _) = extent.rows
    (left, _) = extent.cols
    rows = slice(box.rows[0] - top, box.rows[1] - top)
    return values[:, :, rows, box.cols[0] - left : box.cols[1] - left]


def _compute_hull(first: Box, second: Box) -> Box:
    """Return the smallest box that contains two boxes."""
    if first.empty and second.empty:
        return EMPTY
    if first.empty:
        return second
    if second.empty:
        return first
    return Box(_interval_hull(first.rows, second.rows), _interval_hull(first.cols, second.cols))


def _interval_hull(first: Interval, second: Interval) -> Interval:
    return min(first[0], second[0]), max(first[1], second[1])


def gather_values(comm: MPI.Comm, values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, ``ranks x ...``, in float64 on the host."""
    local = values.detach().double().cpu().contiguous()
    values_by_rank = torch.empty((comm.size, *local.shape), dtype=torch.float64)
    comm.Allgather([mpi_buffer(local), MPI.BYTE], [mpi_buffer(values_by_rank), MPI.BYTE])
    return values_by_rank


def sum_over_ranks(comm: MPI.Comm, values: torch.Tensor) -> torch.Tensor:
    """Return the sum over the ranks. All ranks must call it, and all get the same."""
    if comm.size == 1:
        return values.detach().double().cpu().contiguous()
    return sum_reversed(gather_values(comm, values))


def sum_reversed(values: torch.Tensor) -> torch.Tensor:
    """Return the sum over the first axis, beginning with its last entry."""
    total = torch.zeros_like(values[0])
    for addend in reversed(values.unbind()):
        total += addend
    return total
