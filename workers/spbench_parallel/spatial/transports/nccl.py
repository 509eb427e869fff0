"""The transport ``nccl``: torch.distributed carries dense pieces from GPU to GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from spbench_parallel.groups import create_on_all_ranks
from spbench_parallel.p2p import Message, torch_group
from spbench_parallel.spatial.transports import ReceiveBuffers, TransportError, TransportSpec


class NcclTransport(ReceiveBuffers):
    """One batch of sends and receives an exchange, on a stream of NCCL's own.

    NCCL knows no tags: ranks start their exchanges in the same order. The promises of `wait`
    and `unpack` hold for all later work of the current stream.

    Raises:
        TransportError: A rank has no memory for the pieces, or could not join the group.
    """

    memory_path = None

    def __init__(self, wiring: TransportSpec) -> None:
        self._wiring = wiring.without_views()
        self._buffers, received = create_on_all_ranks(
            wiring.comm, lambda: _buffers(wiring), _no_memory
        )
        super().__init__(wiring, received)
        self._receives = _messages(self.received, wiring.sources)
        self._works: list[torch_group.TorchWork] = []
        self._group = _acquired(wiring)
        self.bind(wiring.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        views = list(zip(self._buffers, outgoing, strict=True))
        self._packs = [(buffer, view) for buffer, view in views if not self._wiring.is_dense(view)]
        pieces = [view if self._wiring.is_dense(view) else buffer for buffer, view in views]
        self._sends = _messages(pieces, self._wiring.targets)

    def unbind(self) -> None:
        self._packs = []
        self._sends = []

    def start(self) -> None:
        for buffer, view in self._packs:
            buffer.copy_(view)
        self._works = self._group.exchange(self._receives, self._sends, self._wiring.tag)

    def progress(self) -> None:
        """Do nothing: NCCL needs no help from the host."""

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works = []

    def release(self) -> None:
        """Do nothing: the next `start` lets NCCL wait for the readers."""

    def free(self) -> None:
        torch_group.release(self._wiring.comm, self._wiring.device)


def _buffers(wiring: TransportSpec) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return memory to send from and to receive into."""
    return (
        [wiring.allocate(view.shape) for view in wiring.outgoing],
        [wiring.allocate_receive(index) for index in range(len(wiring.shapes))],
    )


def _no_memory(rank: int, why: str) -> TransportError:
    return TransportError(f"transport nccl: rank {rank} has no memory for it ({why})")


def _acquired(wiring: TransportSpec) -> torch_group.TorchGroup:
    try:
        return torch_group.acquire(wiring.comm, wiring.device)
    except torch_group.GroupError as error:
        raise TransportError(f"transport nccl: {error}; choose another transport") from error


def _messages(pieces: Sequence[torch.Tensor], ranks: Sequence[int]) -> list[Message]:
    """Return dense pieces as the vectors that they are in memory, whatever the order of axes."""
    vectors = [piece.as_strided((piece.numel(),), (1,)) for piece in pieces]
    return list(zip(vectors, ranks, strict=True))
