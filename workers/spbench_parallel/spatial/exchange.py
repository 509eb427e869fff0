"""Exchange of pieces of an image between ranks, such as halos."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import torch
from mpi4py import MPI

from spbench_core.layout.partition import Piece, Transfers
from spbench_core.layout.tiles import Box
from spbench_parallel.groups import require_agreement
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.transports import TransportSpec
from spbench_parallel.spatial.transports.choose import open_transport

Index = tuple[slice, slice, slice, slice]
"""Pixels of a tensor ``batch x channels x rows x cols``."""
_TAG_COUNT = 30_000  # tags 1 to 30,000; MPI guarantees at least 32,767
_tags = count(1)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages that a rank sends in one exchange, and their total size in bytes."""

    messages: int
    bytes: int


class Exchange:
    """An exchange of pieces of a tensor: a rank sends the pixels that others need.

    It sends one message per neighbour. Buffers, requests and the choice of the transport are set up
    once. Each exchange is `start`, `wait`, `unpack`, `release`, or all of them in `run`. `unbind`
    releases the memory that was sent; then `bind` must precede the next exchange. All ranks of the
    communicator must create an exchange and run its exchanges together.

    Args:
        comm: The ranks.
        transfers: The pieces that each rank sends to each other rank.
        outgoing: Views to send from, in the order of ``transfers.list_sent``; `bind` replaces them.
        into: Views that `unpack` fills, in the order of ``transfers.list_received``. Without them,
            read `received`.
        batch: Number of images.
        channels: Channels of each image.
        dtype: The type of the pixels.
        device: The device of the pixels.
        channels_last: Whether the pixels are in the channels-last memory format.
        transport: The transport's name; ``auto`` measures here and takes the fastest.
        adjoint: Run the transfers backward: send the pieces that the rank receives, and receive
            those that it sends.

    Attributes:
        transport: The name of the transport in use.
        memory_path: For GPU tensors sent by MPI, ``pinned`` or ``device pointers`` with the
            evidence; otherwise None.
        tried_ms: With ``auto``, the time of an exchange over each applicable transport, in ms.
        outgoing: The pieces that this rank sends.
        incoming: The pieces that it receives.

    Raises:
        DisagreementError: The ranks do not all request the same exchange.
        TransportError: The transport cannot be used here.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        transfers: Transfers,
        outgoing: Sequence[torch.Tensor],
        *,
        batch: int,
        channels: int,
        dtype: torch.dtype,
        device: torch.device,
        into: Sequence[torch.Tensor] | None = None,
        channels_last: bool = False,
        transport: str = "auto",
        adjoint: bool = False,
    ) -> None:
        self.outgoing = transfers.list_sent(comm.rank)
        self.incoming = transfers.list_received(comm.rank)
        if adjoint:
            self.outgoing, self.incoming = self.incoming, self.outgoing
        require_agreement(
            comm,
            {
                "table": hashlib.blake2b(repr(transfers).encode(), digest_size=8).hexdigest(),
                "batch": batch,
                "channels": channels,
                "dtype": str(dtype),
                "device": device.type,
                "channels_last": channels_last,
                "transport": transport,
                "adjoint": adjoint,
            },
        )
        spec = TransportSpec(
            comm=comm,
            tag=_next_tag(comm),
            outgoing=outgoing,
            targets=[piece.peer for piece in self.outgoing],
            shapes=[
                (batch, channels, piece.box.height, piece.box.width) for piece in self.incoming
            ],
            sources=[piece.peer for piece in self.incoming],
            into=into,
            dtype=dtype,
            device=device,
            channels_last=channels_last,
        )
        self._bytes_per_pixel = batch * channels * dtype.itemsize
        self._sent_bytes_by_piece = [view.numel() * view.element_size() for view in outgoing]
        self._buffer_bytes = sum(self._sent_bytes_by_piece) + sum(
            map(self.count_piece_bytes, self.incoming)
        )
        opened = open_transport(transport, spec)
        self.transport = opened.name
        self._transport = opened.transport
        self.tried_ms = opened.tried_ms
        self.memory_path = self._transport.memory_path
        # Bound methods, to save a call per step of an exchange.
        self.bind = self._transport.bind
        self.unbind = self._transport.unbind
        self.start = self._transport.start
        self.progress = self._transport.progress
        self.wait = self._transport.wait
        self.unpack = self._transport.unpack
        self.release = self._transport.release
        self.poison = self._transport.poison
        COMM_STATS.buffer_bytes += self._buffer_bytes

    @property
    def received(self) -> Sequence[torch.Tensor]:
        """The received pieces in the order of `incoming`, valid from `wait` to `release`."""
        return self._transport.received

    @property
    def traffic(self) -> Traffic:
        """Messages and bytes that this rank sends in one exchange."""
        return Traffic(len(self._sent_bytes_by_piece), sum(self._sent_bytes_by_piece))

    def count_piece_bytes(self, piece: Piece) -> int:
        """Return the size of a piece in a message, in bytes."""
        return piece.box.height * piece.box.width * self._bytes_per_pixel

    def free(self) -> None:
        """Free buffers and requests. All ranks must call it."""
        COMM_STATS.buffer_bytes -= self._buffer_bytes
        self._transport.free()

    def run(self) -> None:
        """Exchange once, and return when all pieces are received and unpacked."""
        self.start()
        self.wait()
        self.unpack()
        self.release()


def view_box(tensor: torch.Tensor, origin: Box, box: Box) -> torch.Tensor:
    """Return the view of a box of the image in a tensor.

    Args:
        tensor: ``batch x channels x rows x cols``.
        origin: The box of the image that the tensor contains.
        box: A box within ``origin``.
    """
    return tensor[make_box_index(origin, box)]


def make_box_index(origin: Box, box: Box) -> Index:
    """Return the index of a box in a tensor that contains the pixels of ``origin``."""
    top = origin.rows[0]
    left = origin.cols[0]
    rows = slice(box.rows[0] - top, box.rows[1] - top)
    cols = slice(box.cols[0] - left, box.cols[1] - left)
    return slice(None), slice(None), rows, cols


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return whether a tensor, or the tensor it is a view of, is channels-last.

    A tensor that fits both formats is not.
    """
    return not tensor.is_contiguous() and tensor.stride(1) == 1 < tensor.stride(-1)


def add_overlap(
    total: torch.Tensor, total_box: Box, gradient: torch.Tensor | None, box: Box
) -> None:
    """Add a gradient at ``box`` to ``total``, where the boxes overlap."""
    shared = total_box.intersect(box)
    if gradient is not None and not shared.empty:
        view_box(total, total_box, shared).add_(view_box(gradient, box, shared))


def _next_tag(comm: MPI.Intracomm) -> int:
    """Return a tag that no rank of the communicator has used recently."""
    global _tags
    tag: int = comm.allreduce(next(_tags), op=MPI.MAX)
    _tags = count(tag + 1)
    return 1 + tag % _TAG_COUNT
