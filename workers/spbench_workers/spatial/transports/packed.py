"""The transport ``packed``: persistent requests on buffers that torch packs and unpacks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_workers.spatial.transports import Wiring, memory_of


class PackedTransport:
    """Sends from, and receives into, dense buffers of the host.

    A view that is dense already is sent, or received into, as it lies.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._buffers = [wiring.empty(view.shape) for view in wiring.outgoing]
        self._sends: list[MPI.Prequest] = []
        self._packs: list[tuple[torch.Tensor, torch.Tensor] | None] = []
        self.received = [self._landing(index) for index in range(len(wiring.shapes))]
        self._receives = [
            wiring.comm.Recv_init([memory_of(piece), MPI.BYTE], source=source, tag=wiring.tag)
            for piece, source in zip(self.received, wiring.sources, strict=True)
        ]
        self._unpacks = [
            (target, piece)
            for target, piece in zip(wiring.into or self.received, self.received, strict=True)
            if target is not piece
        ]
        self.bind(wiring.outgoing)

    def _landing(self, index: int) -> torch.Tensor:
        into = self._wiring.into
        if into is not None and self._wiring.dense(into[index]):
            return into[index]
        return self._wiring.empty(self._wiring.shapes[index])

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        wiring = self._wiring
        for request in self._sends:
            request.Free()
        views = list(zip(self._buffers, outgoing, strict=True))
        self._packs = [None if wiring.dense(view) else (buffer, view) for buffer, view in views]
        self._sends = [
            wiring.comm.Send_init(
                [memory_of(view if pack is None else pack[0]), MPI.BYTE],
                dest=target,
                tag=wiring.tag,
            )
            for pack, view, target in zip(self._packs, outgoing, wiring.targets, strict=True)
        ]
        self._all = [*self._sends, *self._receives]

    def start(self) -> None:
        MPI.Prequest.Startall(self._receives)
        for pack, request in zip(self._packs, self._sends, strict=True):
            if pack is not None:
                pack[0].copy_(pack[1])
            request.Start()

    def progress(self) -> None:
        MPI.Request.Testall(self._all)

    def wait(self) -> None:
        MPI.Request.Waitall(self._all)

    def unpack(self) -> None:
        for target, piece in self._unpacks:
            target.copy_(piece)

    def release(self) -> None:
        """Nothing arrives before the next `start`."""

    def poison(self) -> None:
        for piece in self.received:
            piece.fill_(float("nan"))

    def free(self) -> None:
        for request in self._all:
            request.Free()
