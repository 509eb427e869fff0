"""The transport ``cuda``: pieces are packed on the GPU and go by MPI, through the host or not."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_workers.spatial.transports import Wiring, memory_of
from spbench_workers.spatial.transports.lane import Lane


class StagedTransport:
    """Persistent requests on pinned memory of the host, or on memory of the GPU.

    Copies have a stream of their own, so that the GPU computes meanwhile what the current stream
    was asked for. `start` does not wait for the GPU: what is not packed yet when it returns, `wait`
    sends. Ranks must therefore wait for their exchanges in the same order. What `wait` and `unpack`
    promise holds for all that the current stream is asked for afterwards.

    Args:
        wiring: What to carry.
        direct: Whether MPI is given memory of the GPU; where it is None, if MPI can take it.
    """

    def __init__(self, wiring: Wiring, direct: bool | None = None) -> None:
        self._wiring = wiring
        self._direct = cuda_aware() if direct is None else direct
        self._lane = Lane(wiring.device)
        self._packed = [wiring.empty(view.shape) for view in wiring.outgoing]
        self.received = [wiring.landing(index) for index in range(len(wiring.shapes))]
        self._outbox, self._inbox = self._packed, self.received
        if not self._direct:
            self._outbox = [wiring.empty(view.shape, pinned=True) for view in wiring.outgoing]
            self._inbox = [wiring.empty(shape, pinned=True) for shape in wiring.shapes]
        self._unpacks = wiring.unpacks(self.received)
        self._receives = [
            wiring.comm.Recv_init([memory_of(box), MPI.BYTE], source=source, tag=wiring.tag)
            for box, source in zip(self._inbox, wiring.sources, strict=True)
        ]
        self._sends = [
            wiring.comm.Send_init([memory_of(box), MPI.BYTE], dest=target, tag=wiring.tag)
            for box, target in zip(self._outbox, wiring.targets, strict=True)
        ]
        self._all = [*self._receives, *self._sends]
        self._read = self._lane.mark()
        self._filled = [self._lane.mark() for _ in self._outbox]
        # Each request may start when its memory has been read, or filled.
        self._steps = [
            *((self._read, request) for request in self._receives),
            *zip(self._filled, self._sends, strict=True),
        ]
        self._waiting = self._steps[:0]
        self.bind(wiring.outgoing)

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        self._views = list(outgoing)

    def start(self) -> None:
        self._lane.follow()
        with self._lane.active():
            if self._direct:
                self._read.record()
            for index, (view, filled) in enumerate(zip(self._views, self._filled, strict=True)):
                self._pack(view, index)
                filled.record()
        self._waiting = self._steps
        self._start_what_is_packed()

    def _pack(self, view: torch.Tensor, index: int) -> None:
        if not self._direct and self._wiring.dense(view):
            self._outbox[index].copy_(view, non_blocking=True)
            return
        self._packed[index].copy_(view)
        if not self._direct:
            self._outbox[index].copy_(self._packed[index], non_blocking=True)

    def _start_what_is_packed(self) -> None:
        steps, self._waiting = self._waiting, []
        for mark, request in steps:
            if mark.query():
                request.Start()
            else:
                self._waiting.append((mark, request))

    def progress(self) -> None:
        self._start_what_is_packed()
        MPI.Request.Testall(self._all)

    def wait(self) -> None:
        for mark, request in self._waiting:
            mark.synchronize()
            request.Start()
        self._waiting = []
        MPI.Request.Waitall(self._all)
        if self._direct:
            return
        with self._lane.active():
            for piece, box in zip(self.received, self._inbox, strict=True):
                piece.copy_(box, non_blocking=True)
            self._read.record()
        self._lane.lead()

    def unpack(self) -> None:
        with self._lane.active():
            for target, piece in self._unpacks:
                target.copy_(piece)
        self._lane.lead()

    def release(self) -> None:
        """The next `start` lets the lane wait for those who read."""

    def poison(self) -> None:
        self._read.synchronize()
        for piece in (*self.received, *self._inbox):
            piece.fill_(float("nan"))

    def free(self) -> None:
        for request in self._all:
            request.Free()


def cuda_aware() -> bool:
    """Whether MPI says that it takes memory of a GPU. Where it cannot say so, it does not."""
    if "MVAPICH2" in MPI.Get_library_version():
        return os.environ.get("MV2_USE_CUDA") == "1"
    # The symbol is in the library that mpi4py was loaded with, or among all that are loaded.
    for path in (MPI.__file__, None):
        try:
            query = ctypes.CDLL(path).MPIX_Query_cuda_support
        except (OSError, AttributeError):
            continue
        query.restype = ctypes.c_int
        return bool(query())
    return False
