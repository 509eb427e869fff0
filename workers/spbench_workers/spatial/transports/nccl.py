"""The transport ``nccl``: torch.distributed carries dense pieces from GPU to GPU."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import torch
import torch.distributed as dist
from mpi4py import MPI

from spbench_workers.spatial.transports import Wiring, group


class NcclTransport:
    """One batch of sends and receives an exchange, on a stream of NCCL's own.

    NCCL knows no tags: ranks start their exchanges in the same order. What `wait` and `unpack`
    promise holds for all that the current stream is asked for afterwards.

    Raises:
        TransportError: A rank could not join the group.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._buffers = [wiring.empty(view.shape) for view in wiring.outgoing]
        self.received = [wiring.landing(index) for index in range(len(wiring.shapes))]
        self._unpacks = wiring.unpacks(self.received)
        self._receives = _messages(self.received, wiring.sources)
        self._works: list[group.Pending] = []
        self._group = group.acquire(wiring.comm, wiring.device)
        self.bind(wiring.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        views = list(zip(self._buffers, outgoing, strict=True))
        self._packs = [(buffer, view) for buffer, view in views if not self._wiring.dense(view)]
        pieces = [view if self._wiring.dense(view) else buffer for buffer, view in views]
        self._sends = _messages(pieces, self._wiring.targets)

    def start(self) -> None:
        for buffer, view in self._packs:
            buffer.copy_(view)
        self._works = self._group.exchange(self._receives, self._sends, self._wiring.tag)

    def progress(self) -> None:
        """NCCL needs no help from the host."""

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works = []

    def unpack(self) -> None:
        for target, piece in self._unpacks:
            target.copy_(piece)

    def release(self) -> None:
        """The next `start` lets NCCL wait for those who read."""

    def poison(self) -> None:
        for piece in self.received:
            piece.fill_(float("nan"))

    def free(self) -> None:
        group.release(self._wiring.comm, self._wiring.device)


def refusal(comm: MPI.Intracomm, device: torch.device) -> str:
    """Return why NCCL cannot serve these ranks; nothing where it can.

    All ranks must call it, and all get the same answer.
    """
    gpus: list[str] = comm.allgather(_gpu(device))
    if "" in gpus:
        return f"is not part of the torch of rank {gpus.index('')}"
    for rank, gpu in enumerate(gpus):
        if gpu in gpus[:rank]:
            return f"needs a GPU for each rank, and ranks {gpus.index(gpu)} and {rank} share one"
    return ""


def _gpu(device: torch.device) -> str:
    """Return what no other GPU is called, on any host; nothing where torch has no NCCL."""
    if not (dist.is_available() and dist.is_nccl_available()):
        return ""
    # Not the device's index: a launcher may show each rank another GPU under the same number.
    return f"{socket.gethostname()} {torch.cuda.get_device_properties(device).uuid}"


def _messages(pieces: Sequence[torch.Tensor], ranks: Sequence[int]) -> list[group.Message]:
    """Return dense pieces as the vectors that they are in memory, whatever the order of axes."""
    vectors = [piece.as_strided((piece.numel(),), (1,)) for piece in pieces]
    return list(zip(vectors, ranks, strict=True))
