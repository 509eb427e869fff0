"""The transport ``nccl``: torch.distributed sends dense pieces from GPU to GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from spbench_parallel.groups import create_on_all_ranks
from spbench_parallel.p2p import Message, torch_group
from spbench_parallel.spatial.transports import ReceiveBuffers, TransportError, TransportSpec


class NcclTransport(ReceiveBuffers):
    """One batch of sends and receives per exchange, on a stream of NCCL.

    NCCL has no tags: ranks must start their exchanges in the same order. The guarantees of `wait`
    and `unpack` hold for later work of the current stream.

    Raises:
        TransportError: A rank has no memory for the pieces, or could not join the group.
    """

    memory_path = None

    def __init__(self, spec: TransportSpec) -> None:
        self._spec = spec.drop_views()
        self._send_buffers, received = create_on_all_ranks(
            spec.comm, lambda: _allocate_buffers(spec), _no_memory_error
        )
        super().__init__(spec, received)
        self._receives = _make_messages(self.received, spec.sources)
        self._works: list[torch_group.TorchWork] = []
        self._group = _acquire_group(spec)
        self.bind(spec.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        buffers_and_views = list(zip(self._send_buffers, outgoing, strict=True))
        self._packs = [
            (buffer, view) for buffer, view in buffers_and_views if not self._spec.is_dense(view)
        ]
        dense_pieces = [
            view if self._spec.is_dense(view) else buffer for buffer, view in buffers_and_views
        ]
        self._sends = _make_messages(dense_pieces, self._spec.targets)

    def unbind(self) -> None:
        self._packs = []
        self._sends = []

    def start(self) -> None:
        for buffer, view in self._packs:
            buffer.copy_(view)
        self._works = self._group.exchange(self._receives, self._sends, self._spec.tag)

    def progress(self) -> None:
        """Do nothing: NCCL needs no help from the host."""

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works = []

    def release(self) -> None:
        """Do nothing: the next `start` makes NCCL wait for the readers."""

    def free(self) -> None:
        torch_group.release(self._spec.comm, self._spec.device)


def _allocate_buffers(spec: TransportSpec) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return memory to send from and to receive into."""
    return (
        [spec.allocate(view.shape) for view in spec.outgoing],
        [spec.allocate_receive(index) for index in range(len(spec.shapes))],
    )


def _no_memory_error(rank: int, reason: str) -> TransportError:
    return TransportError(f"transport nccl: rank {rank} has no memory for it ({reason})")


def _acquire_group(spec: TransportSpec) -> torch_group.TorchGroup:
    try:
        return torch_group.acquire(spec.comm, spec.device)
    except torch_group.GroupError as error:
        raise TransportError(f"transport nccl: {error}; choose another transport") from error


def _make_messages(pieces: Sequence[torch.Tensor], ranks: Sequence[int]) -> list[Message]:
    """Return dense pieces as the vectors that they are in memory, in any axis order."""
    vectors = [piece.as_strided((piece.numel(),), (1,)) for piece in pieces]
    return list(zip(vectors, ranks, strict=True))
