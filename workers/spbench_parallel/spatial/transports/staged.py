"""The transport ``cuda``: pieces are packed on the GPU and go by MPI, through the host or not."""

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
    """Persistent requests on pinned memory of the host, or on memory of the GPU.

    Copies run on the device's copy stream, so that the GPU goes on with the work of the current
    stream. `start` does not wait for the GPU: pieces that are not packed yet when it returns are
    sent by `wait`. Ranks must therefore wait for their exchanges in the same order. The promises
    of `wait` and `unpack` hold for all later work of the current stream.

    Args:
        wiring: The pieces to carry.
        direct: Whether MPI is given memory of the GPU; None: if the MPI of all ranks takes it.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` is neither 0 nor 1.
    """

    def __init__(self, wiring: TransportSpec, direct: bool | None = None) -> None:
        self._wiring = wiring.without_views()
        evidence = "asked for"
        if direct is None:
            direct, evidence = query_device_pointers(wiring.comm)
        self._direct = direct
        self.memory_path: MemoryPath = "device pointers" if direct else "pinned", evidence
        self._streams = get_streams(wiring.device)
        self._packed = [wiring.allocate(view.shape) for view in wiring.outgoing]
        super().__init__(
            wiring, [wiring.allocate_receive(index) for index in range(len(wiring.shapes))]
        )
        self._outbox = self._packed
        self._inbox = self.received
        if not self._direct:
            self._outbox = [wiring.allocate(view.shape, pinned=True) for view in wiring.outgoing]
            self._inbox = [wiring.allocate(shape, pinned=True) for shape in wiring.shapes]
        self._receives = [
            wiring.comm.Recv_init([mpi_buffer(box), MPI.BYTE], source=source, tag=wiring.tag)
            for box, source in zip(self._inbox, wiring.sources, strict=True)
        ]
        self._sends = [
            wiring.comm.Send_init([mpi_buffer(box), MPI.BYTE], dest=target, tag=wiring.tag)
            for box, target in zip(self._outbox, wiring.targets, strict=True)
        ]
        self._all = [*self._receives, *self._sends]
        self._read = self._streams.event()
        self._filled = [self._streams.event() for _ in self._outbox]
        # Each request may start when its memory has been read, or filled.
        self._steps = [
            *((self._read, request) for request in self._receives),
            *zip(self._filled, self._sends, strict=True),
        ]
        self._waiting = self._steps[:0]
        self.bind(wiring.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        self._views = list(outgoing)

    def unbind(self) -> None:
        self._views = []

    def start(self) -> None:
        self._streams.fork_copy_stream()
        with self._streams.use_copy_stream():
            if self._direct:
                self._read.record()
            for index, (view, filled) in enumerate(zip(self._views, self._filled, strict=True)):
                self._pack(view, index)
                filled.record()
        self._waiting = self._steps
        self._start_what_is_packed()

    def _pack(self, view: torch.Tensor, index: int) -> None:
        if not self._direct and self._wiring.is_dense(view):
            self._outbox[index].copy_(view, non_blocking=True)
            return
        self._packed[index].copy_(view)
        if not self._direct:
            self._outbox[index].copy_(self._packed[index], non_blocking=True)

    def _start_what_is_packed(self) -> None:
        steps, self._waiting = self._waiting, []
        for event, request in steps:
            if event.query():
                request.Start()
            else:
                self._waiting.append((event, request))

    def progress(self) -> None:
        self._start_what_is_packed()
        MPI.Request.Testall(self._all)

    def wait(self) -> None:
        for event, request in self._waiting:
            event.synchronize()
            request.Start()
        self._waiting = []
        MPI.Request.Waitall(self._all)
        if self._direct:
            return
        with self._streams.use_copy_stream():
            for piece, box in zip(self.received, self._inbox, strict=True):
                piece.copy_(box, non_blocking=True)
            self._read.record()
        self._streams.join_copy_stream()

    def unpack(self) -> None:
        # Received pieces may have been changed since: a planted fault does that.
        self._streams.fork_copy_stream()
        with self._streams.use_copy_stream():
            super().unpack()
        self._streams.join_copy_stream()

    def release(self) -> None:
        """Do nothing: the next `start` lets the copy stream wait for the readers."""

    def poison(self) -> None:
        self._read.synchronize()
        for piece in (*self.received, *self._inbox):
            piece.fill_(float("nan"))

    def free(self) -> None:
        for request in self._all:
            request.Free()


def query_device_pointers(comm: MPI.Intracomm) -> tuple[bool, str]:
    """Return whether the MPI of all ranks takes memory of a GPU, and the evidence.

    All ranks must call it, and all get the same answer.

    Raises:
        CannotRunError: ``SPBENCH_CUDA_AWARE`` of a rank is neither 0 nor 1; raised on all ranks.
    """
    answer: mpi_memory.CudaAwareness
    try:
        answer = mpi_memory.detect_cuda_awareness()
    except CannotRunError as error:
        answer = None, str(error)
    told = comm.allgather(answer)
    for rank, (takes, evidence) in enumerate(told):
        if takes is None:
            raise CannotRunError(f"rank {rank}: {evidence}")
    for rank, (takes, evidence) in enumerate(told):
        if not takes:
            return False, f"{evidence}{f' on rank {rank}' if rank else ''}"
    return True, str(told[0][1])
