"""Transports ``packed`` and ``datatype``: persistent MPI requests on host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from mpi4py import MPI

from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.transports import ReceiveBuffers, TransportSpec


class PersistentRequests(ReceiveBuffers):
    """Persistent MPI requests on host memory; subclasses create and start them."""

    memory_path = None
    _requests: list[MPI.Prequest]

    def progress(self) -> None:
        """Let MPI move data."""
        MPI.Request.Testall(self._requests)

    def wait(self) -> None:
        """Wait for all requests."""
        MPI.Request.Waitall(self._requests)

    def release(self) -> None:
        """Do nothing: no piece arrives before the next `start`."""

    def free(self) -> None:
        """Free the requests."""
        for request in self._requests:
            request.Free()


class PackedTransport(PersistentRequests):
    """Transport ``packed``: sends from, and receives into, dense host buffers.

    A dense view is sent, or received into, without packing.
    """

    def __init__(self, spec: TransportSpec) -> None:
        self._spec = spec.drop_views()
        self._buffers = [spec.allocate(view.shape) for view in spec.outgoing]
        self._sends: list[MPI.Prequest] = []
        self._sent_addresses: dict[int, int] = {}
        self._pack_by_message: list[tuple[torch.Tensor, torch.Tensor] | None] = []
        super().__init__(spec, [spec.allocate_receive(index) for index in range(len(spec.shapes))])
        self._receives = [
            spec.comm.Recv_init([mpi_buffer(piece), MPI.BYTE], source=source, tag=spec.tag)
            for piece, source in zip(self.received, spec.sources, strict=True)
        ]
        self.bind(spec.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        pairs = list(zip(self._buffers, outgoing, strict=True))
        dense = self._spec.is_dense
        self._pack_by_message = [None if dense(view) else (buffer, view) for buffer, view in pairs]
        for index, (buffer, view) in enumerate(pairs):
            self._bind_send(index, view if dense(view) else buffer)
        self._requests = [*self._sends, *self._receives]

    def unbind(self) -> None:
        self._pack_by_message = []

    def _bind_send(self, index: int, piece: torch.Tensor) -> None:
        """Create the request of a message, unless it already sends from that address."""
        address = piece.data_ptr()
        if self._sent_addresses.get(index) == address:
            return
        if index in self._sent_addresses:
            self._sends[index].Free()
        spec = self._spec
        self._sent_addresses[index] = address
        request = spec.comm.Send_init(
            [mpi_buffer(piece), MPI.BYTE], dest=spec.targets[index], tag=spec.tag
        )
        self._sends[index : index + 1] = [request]

    def start(self) -> None:
        MPI.Prequest.Startall(self._receives)
        for pack, request in zip(self._pack_by_message, self._sends, strict=True):
            if pack is not None:
                buffer, view = pack
                buffer.copy_(view)
            request.Start()


_UNSIGNED_TYPES = {2: MPI.UINT16_T, 4: MPI.UINT32_T, 8: MPI.UINT64_T}
"""MPI's types by size in bytes; values are sent bit by bit in any number format."""


class _ViewLayout(NamedTuple):
    """Shape and strides of a view in values, and the bytes of a value."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    value_bytes: int


class DatatypeTransport(PersistentRequests):
    """Transport ``datatype``: MPI reads and writes the views by derived datatypes."""

    def __init__(self, spec: TransportSpec) -> None:
        self._spec = spec.drop_views()
        self._types: dict[_ViewLayout, MPI.Datatype] = {}
        self._sends: list[MPI.Prequest] = []
        # MPI writes the pieces directly into their targets: there is nothing to unpack.
        into = spec.into
        super().__init__(
            spec, [spec.allocate(shape) for shape in spec.shapes] if into is None else list(into)
        )
        self._receives = [
            spec.comm.Recv_init(self._describe_view(piece), source=source, tag=spec.tag)
            for piece, source in zip(self.received, spec.sources, strict=True)
        ]
        self.bind(spec.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        for request in self._sends:
            request.Free()
        self._sends = [
            self._spec.comm.Send_init(self._describe_view(view), dest=target, tag=self._spec.tag)
            for view, target in zip(outgoing, self._spec.targets, strict=True)
        ]
        self._requests = [*self._receives, *self._sends]

    def unbind(self) -> None:
        """Do nothing: requests only store addresses."""

    def start(self) -> None:
        MPI.Prequest.Startall(self._requests)

    def free(self) -> None:
        super().free()
        for datatype in self._types.values():
            datatype.Free()

    def _describe_view(self, view: torch.Tensor) -> tuple[MPI.buffer, int, MPI.Datatype]:
        layout = _ViewLayout(tuple(view.shape), view.stride(), view.element_size())
        if layout not in self._types:
            self._types[layout] = self._make_datatype(layout)
        return mpi_buffer(view), 1, self._types[layout]

    def _make_datatype(self, layout: _ViewLayout) -> MPI.Datatype:
        """Describe a strided view, with its axes in the order of the message."""
        shape, strides, value_bytes = layout
        axes = (0, 2, 3, 1) if self._spec.channels_last else (0, 1, 2, 3)
        datatype = _UNSIGNED_TYPES[value_bytes].Dup()
        for axis in reversed(axes):
            if shape[axis] > 1:
                outer = datatype.Create_hvector(shape[axis], 1, strides[axis] * value_bytes)
                datatype.Free()
                datatype = outer
        return datatype.Commit()
