"""The transport ``datatype``: MPI reads and writes the views themselves, by derived datatypes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.transports import PersistentRequests, TransportSpec

_UNITS = {2: MPI.UINT16_T, 4: MPI.UINT32_T, 8: MPI.UINT64_T}
"""MPI's datatypes for values of so many bytes, carried bit by bit whatever their number format."""

_Layout = tuple[tuple[int, ...], tuple[int, ...], int]


class DatatypeTransport(PersistentRequests):
    """Persistent requests without any packing of ours."""

    def __init__(self, wiring: TransportSpec) -> None:
        self._wiring = wiring.without_views()
        self._types: dict[_Layout, MPI.Datatype] = {}
        self._sends: list[MPI.Prequest] = []
        # The pieces come to where they belong: there is nothing to unpack.
        into = wiring.into
        super().__init__(
            wiring, [wiring.allocate(one) for one in wiring.shapes] if into is None else list(into)
        )
        self._receives = [
            wiring.comm.Recv_init(self._described(piece), source=source, tag=wiring.tag)
            for piece, source in zip(self.received, wiring.sources, strict=True)
        ]
        self.bind(wiring.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        for request in self._sends:
            request.Free()
        self._sends = [
            self._wiring.comm.Send_init(self._described(view), dest=target, tag=self._wiring.tag)
            for view, target in zip(outgoing, self._wiring.targets, strict=True)
        ]
        self._all = [*self._receives, *self._sends]

    def unbind(self) -> None:
        """Do nothing: requests know addresses alone."""

    def start(self) -> None:
        MPI.Prequest.Startall(self._all)

    def free(self) -> None:
        super().free()
        for datatype in self._types.values():
            datatype.Free()

    def _described(self, view: torch.Tensor) -> tuple[MPI.buffer, int, MPI.Datatype]:
        layout = (tuple(view.shape), view.stride(), view.element_size())
        if layout not in self._types:
            self._types[layout] = self._datatype(*layout)
        return mpi_buffer(view), 1, self._types[layout]

    def _datatype(
        self, shape: tuple[int, ...], strides: tuple[int, ...], size: int
    ) -> MPI.Datatype:
        """Describe a strided view, its axes in the order that pieces have on the wire."""
        order = (0, 2, 3, 1) if self._wiring.channels_last else (0, 1, 2, 3)
        described = _UNITS[size].Dup()
        for axis in reversed(order):
            if shape[axis] > 1:
                outer = described.Create_hvector(shape[axis], 1, strides[axis] * size)
                described.Free()
                described = outer
        return described.Commit()
