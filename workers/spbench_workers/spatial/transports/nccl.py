"""The transport ``nccl``: torch.distributed carries dense pieces from GPU to GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from spbench_workers import torch_group
from spbench_workers.spatial.transports import TransportError, Wiring


class NcclTransport:
    """One batch of sends and receives an exchange, on a stream of NCCL's own.

    NCCL knows no tags: ranks start their exchanges in the same order. What `wait` and `unpack`
    promise holds for all that the current stream is asked for afterwards.

    Raises:
        TransportError: A rank could not join the group.
    """

    memory_path = None

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._buffers = [wiring.empty(view.shape) for view in wiring.outgoing]
        self.received = [wiring.landing(index) for index in range(len(wiring.shapes))]
        self._unpacks = wiring.unpacks(self.received)
        self._receives = _messages(self.received, wiring.sources)
        self._works: list[torch_group.Pending] = []
        self._group = _acquired(wiring)
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
        torch_group.release(self._wiring.comm, self._wiring.device)


def _acquired(wiring: Wiring) -> torch_group.Group:
    try:
        return torch_group.acquire(wiring.comm, wiring.device)
    except torch_group.GroupError as error:
        raise TransportError(f"transport nccl: {error}; choose another transport") from error


def _messages(pieces: Sequence[torch.Tensor], ranks: Sequence[int]) -> list[torch_group.Message]:
    """Return dense pieces as the vectors that they are in memory, whatever the order of axes."""
    vectors = [piece.as_strided((piece.numel(),), (1,)) for piece in pieces]
    return list(zip(vectors, ranks, strict=True))
