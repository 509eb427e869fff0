"""Transports of pieces of images between ranks, all with one interface.

A transport is created once for fixed shapes and peers, and then used for every exchange:

    transport.start()    # pack and send
    transport.wait()     # all pieces have arrived
    transport.unpack()   # into the views of the specification, if there are any
    transport.release()  # received tensors may be overwritten

All ranks create the same transports in the same order and run the same exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from mpi4py import MPI

from spbench_parallel.errors import CannotRunError

Shape = tuple[int, int, int, int]
"""``batch x channels x rows x cols``."""

MemoryPath = tuple[str, str]
"""The memory that MPI gets for GPU tensors, ``pinned`` or ``device pointers``, and the reason."""


class TransportError(CannotRunError):
    """Error: a transport cannot be used here."""


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """The pieces that a transport carries, with their peers and memory.

    Attributes:
        comm: The ranks.
        tag: The tag of all messages. It is the same on all ranks, and unique to this exchange.
        outgoing: Views to send from, one message each. `Transport.bind` can replace them.
        targets: The rank that each outgoing piece goes to; all different.
        shapes: The shapes of the pieces to receive.
        sources: The rank that each incoming piece comes from; all different.
        into: Views that `unpack` fills; None if the caller reads `Transport.received`.
        dtype: The number format of all tensors.
        device: The device of all tensors.
        channels_last: Whether pieces are channels-last in memory.
    """

    comm: MPI.Intracomm
    tag: int
    outgoing: Sequence[torch.Tensor]
    targets: Sequence[int]
    shapes: Sequence[Shape]
    sources: Sequence[int]
    into: Sequence[torch.Tensor] | None
    dtype: torch.dtype
    device: torch.device
    channels_last: bool = False

    def drop_views(self) -> TransportSpec:
        """Return a copy without `outgoing`: a transport must not keep that memory alive."""
        return replace(self, outgoing=())

    def allocate(self, shape: Sequence[int], *, pinned: bool = False) -> torch.Tensor:
        """Return memory for a piece, on the device or in pinned host memory."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        device = torch.device("cpu") if pinned else self.device
        pin = pinned and self.device.type == "cuda"
        return torch.empty(
            tuple(shape), dtype=self.dtype, device=device, pin_memory=pin, memory_format=layout
        )

    def allocate_receive(self, index: int) -> torch.Tensor:
        """Return the memory that a piece is received into.

        That is its target if it is dense, and a new buffer otherwise.
        """
        if self.into is not None and self.is_dense(self.into[index]):
            return self.into[index]
        return self.allocate(self.shapes[index])

    def is_dense(self, tensor: torch.Tensor) -> bool:
        """Return whether a view is contiguous in the pieces' memory format."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return tensor.is_contiguous(memory_format=layout)


class ReceiveBuffers:
    """Pieces that are received in memory of this rank.

    Attributes:
        received: The pieces in the order of the sources.
    """

    def __init__(self, spec: TransportSpec, received: Sequence[torch.Tensor]) -> None:
        self.received = received
        pairs = zip(spec.into or received, received, strict=True)
        self._unpacks = [(target, piece) for target, piece in pairs if target is not piece]

    def unpack(self) -> None:
        """Copy the pieces that were not received in their targets into the targets."""
        for target, piece in self._unpacks:
            target.copy_(piece)

    def poison(self) -> None:
        """Fill the memory of incoming pieces with NaN."""
        for piece in self.received:
            piece.fill_(float("nan"))


class Transport(Protocol):
    """A transport of the pieces of a specification."""

    @property
    def memory_path(self) -> MemoryPath | None:
        """The memory that MPI gets, and why; None on the host or without MPI messages."""

    @property
    def received(self) -> Sequence[torch.Tensor]:
        """The received pieces in the order of the sources, from `wait` to `release`."""

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        """Set the views to send from; they have the shapes of the specification."""

    def unbind(self) -> None:
        """Drop the views to send from, so that their memory can be freed.

        Then `bind` must precede the next `start`.
        """

    def start(self) -> None:
        """Pack and send the pieces; they must not change before `wait` returns."""

    def progress(self) -> None:
        """Let MPI make progress without waiting: it may move data only within calls."""

    def wait(self) -> None:
        """Wait until all pieces are received and the sent ones may change."""

    def unpack(self) -> None:
        """Copy the pieces into the specification's targets, if there are any."""

    def release(self) -> None:
        """Allow the memory of received tensors to be overwritten."""

    def poison(self) -> None:
        """Fill the memory of incoming pieces with NaN. No exchange may be in progress."""

    def free(self) -> None:
        """Free everything. All ranks must call it."""


def exchange_once(transport: Transport) -> None:
    """Exchange all pieces of a transport, without other work in between."""
    transport.start()
    transport.wait()
    transport.unpack()
    transport.release()
