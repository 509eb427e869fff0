"""The transport ``packed``: persistent requests on buffers that torch packs and unpacks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.transports import PersistentRequests, TransportSpec


class PackedTransport(PersistentRequests):
    """Sends from, and receives into, dense buffers of the host.

    A view that is dense already is sent, or received into, as it lies.
    """

    def __init__(self, wiring: TransportSpec) -> None:
        self._wiring = wiring.without_views()
        self._buffers = [wiring.allocate(view.shape) for view in wiring.outgoing]
        self._sends: list[MPI.Prequest] = []
        self._places: dict[int, int] = {}
        self._packs: list[tuple[torch.Tensor, torch.Tensor] | None] = []
        super().__init__(
            wiring, [wiring.allocate_receive(index) for index in range(len(wiring.shapes))]
        )
        self._receives = [
            wiring.comm.Recv_init([mpi_buffer(piece), MPI.BYTE], source=source, tag=wiring.tag)
            for piece, source in zip(self.received, wiring.sources, strict=True)
        ]
        self.bind(wiring.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        pairs = list(zip(self._buffers, outgoing, strict=True))
        dense = self._wiring.is_dense
        self._packs = [None if dense(view) else (buffer, view) for buffer, view in pairs]
        for index, (buffer, view) in enumerate(pairs):
            self._send_from(index, view if dense(view) else buffer)
        self._all = [*self._sends, *self._receives]

    def unbind(self) -> None:
        self._packs = []

    def _send_from(self, index: int, piece: torch.Tensor) -> None:
        """Make the request of a message, unless it already sends from there."""
        place = piece.data_ptr()
        if self._places.get(index) == place:
            return
        if index in self._places:
            self._sends[index].Free()
        wiring = self._wiring
        self._places[index] = place
        request = wiring.comm.Send_init(
            [mpi_buffer(piece), MPI.BYTE], dest=wiring.targets[index], tag=wiring.tag
        )
        self._sends[index : index + 1] = [request]

    def start(self) -> None:
        MPI.Prequest.Startall(self._receives)
        for pack, request in zip(self._packs, self._sends, strict=True):
            if pack is not None:
                pack[0].copy_(pack[1])
            request.Start()
