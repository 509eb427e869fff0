"""Exchange of pieces of an image between ranks, such as halos: one message for each neighbour."""

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
_TAGS = 30_000
"""Tags in use, from 1 up: MPI grants 32767 at least."""
_tags = count(1)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of one exchange of a rank: ``messages`` sent, and ``bytes`` in all of them."""

    messages: int
    bytes: int


class Exchange:
    """An exchange of pieces of a tensor: each rank sends what others need, and receives its own.

    Buffers, requests and the choice of the transport are set up once. Each exchange is
    `start`, `wait`, `unpack`, `release`, or all of them in `run`. `unbind` lets the memory that was
    sent go; then `bind` comes before the next one. All ranks of the communicator
    must make it, and go through its exchanges, together.

    Args:
        comm: The ranks.
        table: The pieces that each rank sends to each other rank.
        outgoing: Views to send from, in the order of ``table.sent_by``; `bind` replaces them.
        into: Views that `unpack` fills, in the order of ``table.received_by``; without them, read
            `received`.
        batch: Number of images.
        channels: Channels of each image.
        transport: Its name; ``auto`` takes the fastest, as measured here and now.
        adjoint: Run the table backward: send the pieces that it receives, and receive those that it
            sends.

    Attributes:
        transport: The name of the transport in use.
        memory_path: Of a GPU's tensors that go over MPI, ``pinned`` or ``device pointers``, and the
            evidence for it; else None.
        tried_ms: Under ``auto``, the time of an exchange over each transport that applies, in ms.
        sent: The pieces that this rank sends.
        expected: The pieces that it receives.

    Raises:
        DisagreementError: The ranks do not all want the same exchange.
        TransportError: The transport cannot be used here.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        table: Transfers,
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
        self.sent = table.list_sent(comm.rank)
        self.expected = table.list_received(comm.rank)
        if adjoint:
            self.sent, self.expected = self.expected, self.sent
        require_agreement(
            comm,
            {
                "table": hashlib.blake2b(repr(table).encode(), digest_size=8).hexdigest(),
                "batch": batch,
                "channels": channels,
                "dtype": str(dtype),
                "device": device.type,
                "channels_last": channels_last,
                "transport": transport,
                "adjoint": adjoint,
            },
        )
        wiring = TransportSpec(
            comm=comm,
            tag=_next_tag(comm),
            outgoing=outgoing,
            targets=[piece.peer for piece in self.sent],
            shapes=[(batch, channels, p.box.height, p.box.width) for p in self.expected],
            sources=[piece.peer for piece in self.expected],
            into=into,
            dtype=dtype,
            device=device,
            channels_last=channels_last,
        )
        self._bytes_a_pixel = batch * channels * dtype.itemsize
        self._sizes = [one.numel() * one.element_size() for one in outgoing]
        self._buffer_bytes = sum(self._sizes) + sum(map(self.piece_bytes, self.expected))
        self.transport, self._transport, self.tried_ms = open_transport(transport, wiring)
        self.memory_path = self._transport.memory_path
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
        """The pieces that have come, in the order of `expected`, from `wait` to `release`."""
        return self._transport.received

    @property
    def traffic(self) -> Traffic:
        """Messages and bytes that this rank sends in one exchange."""
        return Traffic(len(self._sizes), sum(self._sizes))

    def piece_bytes(self, piece: Piece) -> int:
        """Return the bytes of a piece on the wire."""
        return piece.box.height * piece.box.width * self._bytes_a_pixel

    def free(self) -> None:
        """Free buffers and requests. All ranks must call it."""
        COMM_STATS.buffer_bytes -= self._buffer_bytes
        self._transport.free()

    def run(self) -> None:
        """Exchange once; return when all pieces have come and been unpacked."""
        self.start()
        self.wait()
        self.unpack()
        self.release()


def view_box(tensor: torch.Tensor, origin: Box, box: Box) -> torch.Tensor:
    """Return the part of a tensor that holds a box of the image.

    Args:
        tensor: ``batch x channels x rows x cols``.
        origin: The pixels of the image that it holds.
        box: Pixels among them.
    """
    return tensor[box_index(origin, box)]


def box_index(origin: Box, box: Box) -> Index:
    """Return the index of a box in a tensor that holds the pixels of another."""
    top = origin.rows[0]
    left = origin.cols[0]
    rows = slice(box.rows[0] - top, box.rows[1] - top)
    cols = slice(box.cols[0] - left, box.cols[1] - left)
    return slice(None), slice(None), rows, cols


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether a tensor is channels-last in memory, itself or what it is a box of.

    One that fits both formats is not.
    """
    return not tensor.is_contiguous() and tensor.stride(1) == 1 < tensor.stride(-1)


def add_overlap(total: torch.Tensor, at: Box, gradient: torch.Tensor | None, box: Box) -> None:
    """Add to the tensor at one box the gradient at another, where the two boxes overlap."""
    shared = at.intersect(box)
    if gradient is not None and not shared.empty:
        view_box(total, at, shared).add_(view_box(gradient, box, shared))


def _next_tag(comm: MPI.Intracomm) -> int:
    """Return a tag that no rank of the communicator has used for another exchange of late."""
    global _tags
    tag: int = comm.allreduce(next(_tags), op=MPI.MAX)
    _tags = count(tag + 1)
    return 1 + tag % _TAGS
