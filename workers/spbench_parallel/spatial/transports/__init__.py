"""Transports of pieces of images between ranks, all with one interface.

A transport is made once for fixed shapes and peers, and then used for every exchange:

    transport.start()    # pack and send
    transport.wait()     # everything has come
    transport.unpack()   # into the wiring's targets, where there are any
    transport.release()  # received tensors have been read

All ranks make the same transports in the same order and go through the same exchanges.
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
"""The memory that MPI is given for a GPU's tensors, ``pinned`` or ``device pointers``; and why."""


class TransportError(CannotRunError):
    """A transport cannot be used here."""


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """The pieces that a transport carries, with their peers and memory.

    Attributes:
        comm: The ranks.
        tag: The tag of all messages, the same on all ranks, and of this exchange alone.
        outgoing: Views to send from, one message each. `Transport.bind` can replace them.
        targets: The rank that each of them goes to; no rank twice.
        shapes: The shapes of the pieces to receive.
        sources: The rank that each of those comes from; no rank twice.
        into: Views that `unpack` fills; None where the reader takes `Transport.received`.
        dtype: The number format of all tensors.
        device: The device of all tensors.
        channels_last: Whether pieces lie in memory with their channels together.
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

    def without_views(self) -> TransportSpec:
        """Return it without the views to send from, whose memory a transport must not keep."""
        return replace(self, outgoing=())

    def allocate(self, shape: Sequence[int], *, pinned: bool = False) -> torch.Tensor:
        """Return memory for a piece: on the device, or pinned memory of the host."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        device = torch.device("cpu") if pinned else self.device
        pin = pinned and self.device.type == "cuda"
        return torch.empty(
            tuple(shape), dtype=self.dtype, device=device, pin_memory=pin, memory_format=layout
        )

    def allocate_receive(self, index: int) -> torch.Tensor:
        """Return the memory that a piece arrives in: its target where dense, or else a buffer."""
        if self.into is not None and self.is_dense(self.into[index]):
            return self.into[index]
        return self.allocate(self.shapes[index])

    def is_dense(self, tensor: torch.Tensor) -> bool:
        """Whether a view is one block of memory, in the order that pieces have on the wire."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return tensor.is_contiguous(memory_format=layout)


class ReceiveBuffers:
    """Pieces that arrive in memory of this rank.

    Attributes:
        received: Where they arrive, in the order of the sources.
    """

    def __init__(self, wiring: TransportSpec, received: Sequence[torch.Tensor]) -> None:
        self.received = received
        pairs = zip(wiring.into or received, received, strict=True)
        self._unpacks = [(target, piece) for target, piece in pairs if target is not piece]

    def unpack(self) -> None:
        """Copy the pieces that have arrived elsewhere than in their targets into these."""
        for target, piece in self._unpacks:
            target.copy_(piece)

    def poison(self) -> None:
        """Fill the memory that pieces arrive in with NaN."""
        for piece in self.received:
            piece.fill_(float("nan"))


class PersistentRequests(ReceiveBuffers):
    """Persistent requests of MPI on memory of the host: its subclasses make and start them."""

    memory_path = None
    _all: list[MPI.Prequest]

    def progress(self) -> None:
        """Let MPI move data."""
        MPI.Request.Testall(self._all)

    def wait(self) -> None:
        """Wait for all requests."""
        MPI.Request.Waitall(self._all)

    def release(self) -> None:
        """Nothing arrives before the next `start`."""

    def free(self) -> None:
        """Give the requests back."""
        for request in self._all:
            request.Free()


class Transport(Protocol):
    """A transport of the pieces of a wiring."""

    @property
    def memory_path(self) -> MemoryPath | None:
        """The memory that MPI is given, and why; None on the host, and where MPI sends nothing."""

    @property
    def received(self) -> Sequence[torch.Tensor]:
        """The pieces that have come, from `wait` to `release`, in the order of the sources."""

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        """Set the views to send from; their shapes are those of the wiring."""

    def unbind(self) -> None:
        """Forget the views to send from, whose memory may go; `bind` comes before `start` then."""

    def start(self) -> None:
        """Pack the pieces and send them. What is sent must not change before `wait` returns."""

    def progress(self) -> None:
        """Let MPI make progress, without waiting: it may move data only in its calls."""

    def wait(self) -> None:
        """Return when all pieces have come and what was sent may change."""

    def unpack(self) -> None:
        """Copy the pieces into the wiring's targets; nothing to do where it has none."""

    def release(self) -> None:
        """Release the received tensors: their memory may be written again."""

    def poison(self) -> None:
        """Fill the memory that pieces arrive in with NaN. No exchange may be under way."""

    def free(self) -> None:
        """Free everything. All ranks must call it."""


def exchange_once(transport: Transport) -> None:
    """Exchange all pieces of a transport, with nothing else to do meanwhile."""
    transport.start()
    transport.wait()
    transport.unpack()
    transport.release()
