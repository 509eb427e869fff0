"""The transport ``cuda``: pieces are packed on the GPU and sent by MPI."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_parallel.device import mpi_memory
from spbench_parallel.device.streams import get_streams
from spbench_parallel.errors import CannotRunError
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.transports import MemoryPath, ReceiveBuffers, TransportSpec


class StagedTransport(ReceiveBuffers):
    """Persistent requests on pinned host memory, or on GPU memory.

    Copies run on the device's copy stream, so that the GPU continues with the work of the current
    stream. `start` does not wait for the GPU: `wait` sends the pieces that are not packed when
    `start` returns. Therefore ranks must wait for their exchanges in the same order. The guarantees
    of `wait` and `unpack` hold for later work of the current stream.

    Args:
        spec: The pieces to carry.
        direct: Whether MPI gets GPU memory; None: if the MPI of all ranks accepts it.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` is neither 0 nor 1.
    """

    def __init__(self, spec: TransportSpec, direct: bool | None = None) -> None:
        self._spec = spec.drop_views()
        evidence = "asked for"
        if direct is None:
            direct, evidence = query_device_pointers(spec.comm)
        self._direct = direct
        self.memory_path: MemoryPath = "device pointers" if direct else "pinned", evidence
        self._streams = get_streams(spec.device)
        self._packed = [spec.allocate(view.shape) for view in spec.outgoing]
        super().__init__(spec, [spec.allocate_receive(index) for index in range(len(spec.shapes))])
        self._send_memory = self._packed
        self._receive_memory = self.received
        if not self._direct:
            self._send_memory = [spec.allocate(view.shape, pinned=True) for view in spec.outgoing]
            self._receive_memory = [spec.allocate(shape, pinned=True) for shape in spec.shapes]
        self._receives = [
            spec.comm.Recv_init([mpi_buffer(memory), MPI.BYTE], source=source, tag=spec.tag)
            for memory, source in zip(self._receive_memory, spec.sources, strict=True)
        ]
        self._sends = [
            spec.comm.Send_init([mpi_buffer(memory), MPI.BYTE], dest=target, tag=spec.tag)
            for memory, target in zip(self._send_memory, spec.targets, strict=True)
        ]
        self._requests = [*self._receives, *self._sends]
        self._receive_memory_read = self._streams.event()
        self._send_memory_filled = [self._streams.event() for _ in self._send_memory]
        # A request may start after its event: its memory has been read (receive) or filled (send).
        self._request_events = [
            *((self._receive_memory_read, request) for request in self._receives),
            *zip(self._send_memory_filled, self._sends, strict=True),
        ]
        self._pending_requests = self._request_events[:0]
        self.bind(spec.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        self._views = list(outgoing)

    def unbind(self) -> None:
        self._views = []

    def start(self) -> None:
        self._streams.fork_copy_stream()
        with self._streams.use_copy_stream():
            if self._direct:
                self._receive_memory_read.record()
            for index, (view, filled) in enumerate(
                zip(self._views, self._send_memory_filled, strict=True)
            ):
                self._pack(view, index)
                filled.record()
        self._pending_requests = self._request_events
        self._start_ready_requests()

    def _pack(self, view: torch.Tensor, index: int) -> None:
        if not self._direct and self._spec.is_dense(view):
            self._send_memory[index].copy_(view, non_blocking=True)
            return
        self._packed[index].copy_(view)
        if not self._direct:
            self._send_memory[index].copy_(self._packed[index], non_blocking=True)

    def _start_ready_requests(self) -> None:
        previously_pending = self._pending_requests
        self._pending_requests = []
        for event, request in previously_pending:
            if event.query():
                request.Start()
            else:
                self._pending_requests.append((event, request))

    def progress(self) -> None:
        self._start_ready_requests()
        MPI.Request.Testall(self._requests)

    def wait(self) -> None:
        for event, request in self._pending_requests:
            event.synchronize()
            request.Start()
        self._pending_requests = []
        MPI.Request.Waitall(self._requests)
        if self._direct:
            return
        with self._streams.use_copy_stream():
            for piece, memory in zip(self.received, self._receive_memory, strict=True):
                piece.copy_(memory, non_blocking=True)
            self._receive_memory_read.record()
        self._streams.join_copy_stream()

    def unpack(self) -> None:
        # Fork again: the current stream may have changed received pieces (fault injection).
        self._streams.fork_copy_stream()
        with self._streams.use_copy_stream():
            super().unpack()
        self._streams.join_copy_stream()

    def release(self) -> None:
        """Do nothing: the next `start` makes the copy stream wait for the readers."""

    def poison(self) -> None:
        self._receive_memory_read.synchronize()
        for piece in (*self.received, *self._receive_memory):
            piece.fill_(float("nan"))

    def free(self) -> None:
        for request in self._requests:
            request.Free()


def query_device_pointers(comm: MPI.Intracomm) -> tuple[bool, str]:
    """Return whether the MPI of all ranks accepts GPU memory, and the evidence.

    Collective; all ranks get the same answer.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` of a rank is neither 0 nor 1; raised on all ranks.
    """
    awareness: mpi_memory.CudaAwareness
    try:
        awareness = mpi_memory.detect_cuda_awareness()
    except CannotRunError as error:
        awareness = None, str(error)
    awareness_by_rank = comm.allgather(awareness)
    for rank, (accepts, evidence) in enumerate(awareness_by_rank):
        if accepts is None:
            raise CannotRunError(f"rank {rank}: {evidence}")
    for rank, (accepts, evidence) in enumerate(awareness_by_rank):
        if not accepts:
            return False, f"{evidence}{f' on rank {rank}' if rank else ''}"
    return True, str(awareness_by_rank[0][1])
