"""A stand-in for CUDA IPC on the device that runs late: processes map files.

The work of a process is done when it waits, or when another process waits for one of its events: a
thread of the stand-in looks for such waits. Like on a GPU, a wait for an event covers the records
before the wait. A missing wait leaves NaN or the old values.

Memory that its process has freed is overwritten, also if other processes still have it open.

It counts open events and mappings of the memory of other processes, which a driver limits. Like
torch's allocator, it puts small pieces of memory into segments, and a process maps a segment once.
The product decides whether to open the event of a piece, which counts but lets no process wait.

It does not show CUDA's handles, nor peer access between GPUs.
"""

import atexit
import mmap
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import WeakValueDictionary, finalize

import torch

from spbench_parallel.device import ipc
from standins.late_device import LateTensor, install, unwrap

_PAUSE = 0.0002
"""Seconds between two checks."""
_OVERWRITTEN = b"\xff"
"""Each byte of freed memory: NaN as a floating-point number."""
_RECORDED, _DONE, _AWAITED = range(3)
"""The numbers of an event: enqueued records, done records, and the awaited one."""
_MAX_OPEN = 1000
"""Maximum of open events, and of mappings, per process; a driver allows more."""
_SEGMENT = 2 << 20
_SMALL = 1 << 20
"""Bytes of a segment of small pieces, and of the largest small piece, like in torch."""
_BLOCK = 512
"""Pieces start at multiples of these bytes, like in torch's allocator."""
_MAX_EVENT_HANDLES = 1000
"""Live handles with an event. For later ones, torch waits for the stream."""


@cache
def _folder():
    return tempfile.TemporaryDirectory(prefix="late-ipc-", dir="/dev/shm")


def _map_file(path, size, dtype):
    return torch.from_file(path, shared=True, size=size, dtype=dtype)


def _create_file():
    descriptor, path = tempfile.mkstemp(dir=_folder().name)
    os.close(descriptor)
    return path


def _map_segment(path):
    with Path(path).open("r+b") as file:
        segment = mmap.mmap(file.fileno(), 0)
    address = torch.frombuffer(segment, dtype=torch.uint8).data_ptr()
    allocator = install().allocator
    allocator.exempt(address, len(segment))
    finalize(segment, allocator.end_exemption, address).atexit = False
    return segment


class Segment:
    """Memory from the driver, with one or several pieces of the sender's allocator."""

    def __init__(self, nbytes):
        self.path = _create_file()
        os.truncate(self.path, nbytes)
        self.memory = _map_segment(self.path)
        self._nbytes = nbytes
        self._used = 0

    def can_take(self, nbytes):
        return self._used + nbytes <= self._nbytes

    def take(self, nbytes):
        """Return the offset of a new piece; freed pieces are not reused."""
        offset = self._used
        self._used += -(-nbytes // _BLOCK) * _BLOCK
        return offset


@dataclass
class Piece:
    """Shared memory of this process.

    Attributes:
        segment: Its segment.
        offset: Its first byte there.
        nbytes: Its size.
        handles: The number of handles of it.
    """

    segment: Segment
    offset: int
    nbytes: int
    handles: int = 0

    def map(self, when_freed):
        """Return its bytes; call a function when this process no longer uses them."""
        view = memoryview(self.segment.memory)[self.offset : self.offset + self.nbytes]
        tensor = torch.frombuffer(view, dtype=torch.uint8)
        finalize(view, when_freed, tensor.data_ptr())
        return tensor

    def overwrite(self):
        end = self.offset + self.nbytes
        self.segment.memory[self.offset : end] = _OVERWRITTEN * self.nbytes


class OwnEvent:
    """An event of this process."""

    def __init__(self):
        self.path = _create_file()
        self.numbers = _map_file(self.path, 3, torch.int64).zero_()
        self._positions = {}
        self._lock = threading.Lock()

    def record(self):
        count = int(self.numbers[_RECORDED]) + 1
        stream = install().current
        stream.enqueue(lambda: self._set_done(count))
        self._positions[count] = stream, stream.enqueued
        self.numbers[_RECORDED] = count

    def _set_done(self, count):
        """Store that a record is done; records of different streams have any order."""
        with self._lock:
            self.numbers[_DONE] = max(count, int(self.numbers[_DONE]))

    def serve(self):
        """Do the work for which another process waits."""
        awaited = int(self.numbers[_AWAITED])
        if awaited > int(self.numbers[_DONE]):
            stream, position = self._positions[awaited]
            stream.run_to(position)


class OpenedEvent:
    """An event of another process."""

    def __init__(self, path):
        self.numbers = _map_file(path, 3, torch.int64)

    def wait(self):
        count = int(self.numbers[_RECORDED])
        install().current.enqueue(lambda: self._wait_until(count))

    def _wait_until(self, count):
        while int(self.numbers[_DONE]) < count:
            # In each round, because another process may have replaced it by a lower one.
            if int(self.numbers[_AWAITED]) < count:
                self.numbers[_AWAITED] = count
            time.sleep(_PAUSE)


class LateIpc:
    """The memory and events that the device shares, for `spbench_parallel.device.ipc`.

    Args:
        max_open: Maximum of open events, and of mappings, per process.
        max_event_handles: Maximum of live handles with an event.

    Attributes:
        open_events: The number of events of other processes that are open.
        mappings: The memory of other processes that is mapped, by the handle of its segment.
    """

    open_memory = ipc.CudaIpc.open_memory

    def __init__(self, max_open=_MAX_OPEN, max_event_handles=_MAX_EVENT_HANDLES):
        self._max_open = max_open
        self._max_event_handles = max_event_handles
        self.packed_event = OwnEvent()
        self.read_event = OwnEvent()
        self.open_events = 0
        self.mappings = WeakValueDictionary()
        self._opened = {}
        self._small = Segment(_SEGMENT)
        self._pieces = {}
        self._ended = threading.Event()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()
        atexit.register(self.end)

    def event_handles(self):
        return self.packed_event.path.encode(), self.read_event.path.encode()

    def open_event(self, handle):
        if handle not in self._opened:
            self._count_event()
            self._opened[handle] = OpenedEvent(handle.decode())
        return self._opened[handle]

    def share(self, memory):
        """Return a handle with the fields of torch's ``_share_cuda_``."""
        piece = self._find_or_create_piece(unwrap(memory))
        handles = sum(piece.handles for piece in list(self._pieces.values()))
        has_event = handles < self._max_event_handles
        if not has_event:
            install().streams.synchronize()
        piece.handles += 1
        handle = piece.segment.path.encode()
        return 0, handle, piece.nbytes, piece.offset, b"counters", 0, b"event", has_event

    def _find_or_create_piece(self, elem):
        address = elem.data_ptr()
        if address not in self._pieces:
            nbytes = elem.numel()
            segment = self._select_segment(nbytes)
            piece = Piece(segment, segment.take(nbytes), nbytes)
            mapped = piece.map(self._free).copy_(elem)
            address = mapped.data_ptr()
            self._pieces[address] = piece
            # Further work writes to the new location.
            elem.set_(mapped)
        return self._pieces[address]

    def _free(self, address):
        self._pieces.pop(address).overwrite()

    def _select_segment(self, nbytes):
        if nbytes > _SMALL:
            return Segment(nbytes)
        if not self._small.can_take(nbytes):
            self._small = Segment(_SEGMENT)
        return self._small

    def _open_storage_memory(self, handle, nbytes, offset, counters, counter, event, opens_event):
        """Replace torch's ``_new_shared_cuda`` with these fields.

        Its event stays open, because torch does not destroy it, and the caller has to wait by
        other means.
        """
        if opens_event:
            self._count_event()
        segment = self.mappings.get(handle)
        if segment is None:
            self._check_limit(len(self.mappings))
            segment = self.mappings[handle] = _map_segment(handle.decode())
        # The storage keeps the segment mapped.
        memory = torch.frombuffer(segment, dtype=torch.uint8, count=nbytes, offset=offset)
        return LateTensor(memory)

    def _count_event(self):
        self._check_limit(self.open_events)
        self.open_events += 1

    def _check_limit(self, count):
        if count >= self._max_open:
            raise RuntimeError("CUDA error: mapping of buffer object failed")

    def end(self):
        self._ended.set()
        self._server.join()

    def _serve(self):
        while not self._ended.wait(_PAUSE):
            self.packed_event.serve()
            self.read_event.serve()


def install_ipc():
    """Add shared memory and events to the device that runs late; once per process."""
    ipc.IPC_FACTORIES["late"] = lambda _: LateIpc()
