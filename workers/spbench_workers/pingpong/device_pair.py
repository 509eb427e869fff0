"""Ping-pong of two ranks between the memories of their devices.

There are four paths:

- ``pinned``: from the device to pinned memory of the host, by MPI, and from there to the other
  device, like the transport ``cuda``.
- ``pointers``: MPI reads and writes the memory of the device.
- ``cuda-ipc``: the receiver reads the memory of the sender's device, like the transport of that
  name.
- ``nccl``: by NCCL; if the device is the host, by gloo.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from mpi4py import MPI

from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import CannotRunError
from spbench_parallel.groups import is_on_one_host
from spbench_parallel.p2p import torch_group
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.transports import TransportSpec, exchange_once
from spbench_parallel.spatial.transports.cuda_ipc import CudaIpcTransport
from spbench_workers.pingpong.pair import TAG, Pair, Peer, measure_half_trip

MessagePath = Literal["pinned", "pointers", "cuda-ipc", "nccl"]


class DevicePair(ABC):
    """A ping-pong of one message size between this rank's device and a peer's.

    Args:
        peer: The other rank.
        outgoing: The sent message: bytes on the device.
        incoming: Memory of the other's message, of the same size.

    Attributes:
        peer: The other rank.
        count: Bytes of one message.
    """

    def __init__(self, peer: Peer, outgoing: torch.Tensor, incoming: torch.Tensor) -> None:
        self.peer = peer
        self.count = outgoing.numel()
        self._outgoing = outgoing
        self._incoming = incoming
        self._device = outgoing.device
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Open requests and buffers."""

    @abstractmethod
    def send(self) -> None:
        """Send once, after all earlier work of the current stream."""

    @abstractmethod
    def receive(self) -> None:
        """Receive once; later work of the current stream can use the message."""

    def make_round_trips(self, count: int) -> None:
        """Make ``count`` round trips; both ranks must ask for the same number.

        When it returns, the last message has arrived on the device.
        """
        first = self.send
        second = self.receive
        if not self.peer.leads:
            first, second = second, first
        for _ in range(count):
            first()
            second()
            synchronize_stream(self._device)

    @abstractmethod
    def free(self) -> None:
        """Free the resources of MPI or of the group."""


class _PinnedPair(DevicePair):
    """A ping-pong through pinned memory of the host."""

    def _open(self) -> None:
        pins = self._device.type == "cuda"
        self._outbox, self._inbox = (
            torch.zeros(self.count, dtype=torch.uint8, pin_memory=pins) for _ in range(2)
        )
        boxes = mpi_buffer(self._outbox), mpi_buffer(self._inbox)
        self._pair = Pair(self.peer, *boxes, self.count)

    def send(self) -> None:
        self._outbox.copy_(self._outgoing, non_blocking=True)
        synchronize_stream(self._device)
        self._pair.send()

    def receive(self) -> None:
        self._pair.receive()
        # `make_round_trips` or `send` waits for the stream before the next message arrives.
        self._incoming.copy_(self._inbox, non_blocking=True)

    def free(self) -> None:
        synchronize_stream(self._device)
        self._pair.free()


class _PointersPair(DevicePair):
    """A ping-pong in which MPI reads and writes the device's memory."""

    def _open(self) -> None:
        memories = mpi_buffer(self._outgoing), mpi_buffer(self._incoming)
        self._pair = Pair(self.peer, *memories, self.count)

    def send(self) -> None:
        # MPI does not know torch's streams.
        synchronize_stream(self._device)
        self._pair.send()

    def receive(self) -> None:
        # Streams do not know MPI either: work that still reads the memory must have ended.
        synchronize_stream(self._device)
        self._pair.receive()

    def free(self) -> None:
        self._pair.free()


class _CudaIpcPair(DevicePair):
    """A ping-pong by the transport ``cuda-ipc``, one transport per direction."""

    def _open(self) -> None:
        all_ranks = self.peer.comm.Get_group()
        both_ranks = all_ranks.Incl(sorted((self.peer.comm.rank, self.peer.rank)))
        self._comm = self.peer.comm.Create_group(both_ranks, TAG)
        both_ranks.Free()
        all_ranks.Free()
        # Opening is collective: both ranks open the transport of sender 0 first.
        transports = [self._open_transport(sender) for sender in range(2)]
        self._out = transports[self._comm.rank]
        self._back = transports[1 - self._comm.rank]

    def _open_transport(self, sender: int) -> CudaIpcTransport:
        shape = (1, 1, 1, self.count)
        other = 1 - self._comm.rank
        sends = self._comm.rank == sender
        return CudaIpcTransport(
            TransportSpec(
                comm=self._comm,
                tag=TAG,
                outgoing=[self._outgoing.view(shape)] if sends else [],
                targets=[other] if sends else [],
                shapes=[] if sends else [shape],
                sources=[] if sends else [other],
                into=[] if sends else [self._incoming.view(shape)],
                dtype=torch.uint8,
                device=self._device,
            )
        )

    def send(self) -> None:
        exchange_once(self._out)

    def receive(self) -> None:
        exchange_once(self._back)

    def free(self) -> None:
        # Freeing is collective, so that both ranks need the same order.
        transports = self._out, self._back
        for transport in transports if self.peer.leads else reversed(transports):
            transport.free()
        self._comm.Free()


class _NcclPair(DevicePair):
    """A ping-pong by NCCL, with a stream that synchronizes with the current one."""

    def _open(self) -> None:
        self._group = torch_group.acquire(self.peer.comm, self._device)

    def send(self) -> None:
        for work in self._group.exchange([], [(self._outgoing, self.peer.rank)], TAG):
            work.wait()

    def receive(self) -> None:
        for work in self._group.exchange([(self._incoming, self.peer.rank)], [], TAG):
            work.wait()

    def free(self) -> None:
        torch_group.release(self.peer.comm, self._device)


_PAIR_TYPES: dict[MessagePath, type[DevicePair]] = {
    "pinned": _PinnedPair,
    "pointers": _PointersPair,
    "cuda-ipc": _CudaIpcPair,
    "nccl": _NcclPair,
}


def open_pair(
    peer: Peer, outgoing: torch.Tensor, incoming: torch.Tensor, path: MessagePath
) -> DevicePair:
    """Return the pair of this rank and a peer, within `open_path`.

    The peer must also open it.

    Args:
        peer: The other rank.
        outgoing: The sent message: a dense vector of bytes on the device.
        incoming: Memory of the other's message, of the same size.
        path: The path of the messages.
    """
    return _PAIR_TYPES[path](peer, outgoing, incoming)


def check_cuda_ipc(comm: MPI.Intracomm, device: torch.device) -> None:
    """Check that all ranks can read each other's memory by CUDA IPC.

    All ranks must call it.

    Raises:
        TransportError: A rank cannot; all of them raise it, and none waits for a pair that failed.
    """
    peers = [rank for rank in range(comm.size) if rank != comm.rank]
    CudaIpcTransport(
        TransportSpec(
            comm=comm,
            tag=TAG,
            outgoing=[torch.zeros((1, 1, 1, 1), dtype=torch.uint8, device=device)] * len(peers),
            targets=peers,
            shapes=[(1, 1, 1, 1)] * len(peers),
            sources=peers,
            into=None,
            dtype=torch.uint8,
            device=device,
        )
    ).free()


@contextmanager
def open_path(comm: MPI.Intracomm, device: torch.device, path: MessagePath) -> Iterator[None]:
    """Open a path on all ranks of ``comm``, including those without a pair.

    All ranks of ``comm`` must enter and leave it; for ``nccl`` these are their group.

    Raises:
        CannotRunError: The path cannot serve these ranks; all of them raise it.
    """
    if path == "cuda-ipc" and not is_on_one_host(comm):
        raise CannotRunError("path cuda-ipc needs all ranks on one host; choose another path")
    if path != "nccl":
        yield
        return
    if device.type == "cuda" and (reason := torch_group.explain_missing_nccl(comm, device)):
        raise CannotRunError(f"path nccl {reason}; choose another path")
    torch_group.acquire(comm, device)
    yield
    # Not after an exception, because a release waits for all ranks.
    torch_group.release(comm, device)


def measure_one_way_on_devices(
    peer: Peer, count: int, trips: int, *, device: torch.device, path: MessagePath
) -> float:
    """Return half the median round trip of ``count`` bytes between two ranks' devices.

    Both ranks of the pair must call it. With path ``nccl`` all ranks of its ``comm`` must be within
    `open_path`, unless the pair are all of them: the group is that of the whole communicator.

    Args:
        peer: The other rank.
        count: Bytes of a message.
        trips: The number of timed round trips.
        device: This rank's device.
        path: The path; with ``pointers`` MPI must support memory of the device.
    """
    outgoing, incoming = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
    pair = open_pair(peer, outgoing, incoming, path)
    seconds = measure_half_trip(pair.make_round_trips, trips)
    pair.free()
    return seconds
