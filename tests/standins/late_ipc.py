"""A stand-in for CUDA IPC on the device that runs late: memory is in files that processes map.

A process's work is done when another process waits for one of its events, as well as when it waits
itself: a thread of the stand-in looks for such waits. As on a GPU, who waits for an event waits for
what had been recorded when it asked. A wait that is missing leaves NaN, or what was there before.

Memory that its process has let go of is overwritten, whoever still has it open.

It counts what the driver limits: open events, and mappings of other processes' memory. As torch's
allocator does, it puts small pieces of memory into segments, each of which a process maps once. The
product decides whether to open the event of a piece, which is counted but makes nobody wait.

It shows nothing of CUDA's own handles, nor of peer access between GPUs.
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
from standins.late_device import LateTensor, elem_of, install

_PAUSE = 0.0002
"""Seconds between two looks."""
_OVERWRITTEN = b"\xff"
"""Each byte of memory that is gone: NaN as a floating-point number."""
_RECORDED, _DONE, _WANTED = range(3)
"""The numbers of an event: records asked for, records done, and the one that is waited for."""
_MAX_OPEN = 1000
"""The most events, and the most mappings, that a process can have open; a driver has more."""
_SEGMENT = 2 << 20
_SMALL = 1 << 20
"""Bytes of a segment of small pieces, and of the largest small piece, as torch's allocator has."""
_BLOCK = 512
"""Bytes at whose multiples pieces start, as in torch's allocator."""
_MAX_EVENT_HANDLES = 1000
"""Live handles with an event: torch has no event for later ones, and waits for the stream."""


@cache
def _folder():
    return tempfile.TemporaryDirectory(prefix="late-ipc-", dir="/dev/shm")


def _mapped(path, size, dtype):
    return torch.from_file(path, shared=True, size=size, dtype=dtype)


def _new_file():
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
    """Memory that the sender's allocator has asked the driver for, with one piece or several."""

    def __init__(self, nbytes):
        self.path = _new_file()
        os.truncate(self.path, nbytes)
        self.memory = _map_segment(self.path)
        self._nbytes = nbytes
        self._taken = 0

    def has_room(self, nbytes):
        return self._taken + nbytes <= self._nbytes

    def take(self, nbytes):
        """Return the offset of a new piece. Freed pieces are not reused, so that it shows."""
        offset = self._taken
        self._taken += -(-nbytes // _BLOCK) * _BLOCK
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
        """Return its bytes, and call a function when nothing of this process uses them."""
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
        self.path = _new_file()
        self.numbers = _mapped(self.path, 3, torch.int64).zero_()
        self._places = {}
        self._lock = threading.Lock()

    def record(self):
        count = int(self.numbers[_RECORDED]) + 1
        stream = install().current
        stream.ask(lambda: self._reach(count))
        self._places[count] = stream, stream.asked
        self.numbers[_RECORDED] = count

    def _reach(self, count):
        """Note that a record is done; records on different streams come in any order."""
        with self._lock:
            self.numbers[_DONE] = max(count, int(self.numbers[_DONE]))

    def serve(self):
        """Do the work that another process waits for."""
        wanted = int(self.numbers[_WANTED])
        if wanted > int(self.numbers[_DONE]):
            stream, position = self._places[wanted]
            stream.run_to(position)


class OpenedEvent:
    """An event of another process."""

    def __init__(self, path):
        self.numbers = _mapped(path, 3, torch.int64)

    def wait(self):
        count = int(self.numbers[_RECORDED])
        install().current.ask(lambda: self._come_to(count))

    def _come_to(self, count):
        while int(self.numbers[_DONE]) < count:
            # Again and again: another process may have written a lower one over it.
            if int(self.numbers[_WANTED]) < count:
                self.numbers[_WANTED] = count
            time.sleep(_PAUSE)


class LateIpc:
    """What the device shares, as `spbench_parallel.device.ipc` has it.

    Args:
        max_open: The most events, and the most mappings, that a process can have open.
        max_event_handles: The most live handles with an event.

    Attributes:
        open_events: The number of events of other processes that are open.
        mappings: The memory of other processes that is mapped, by the handle of its segment.
    """

    open_memory = ipc.CudaIpc.open_memory

    def __init__(self, max_open=_MAX_OPEN, max_event_handles=_MAX_EVENT_HANDLES):
        self._max_open = max_open
        self._max_event_handles = max_event_handles
        self.packed = OwnEvent()
        self.read = OwnEvent()
        self.open_events = 0
        self.mappings = WeakValueDictionary()
        self._opened = {}
        self._small = Segment(_SEGMENT)
        self._pieces = {}
        self._over = threading.Event()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()
        atexit.register(self.end)

    def event_handles(self):
        return self.packed.path.encode(), self.read.path.encode()

    def open_event(self, handle):
        if handle not in self._opened:
            self._count_event()
            self._opened[handle] = OpenedEvent(handle.decode())
        return self._opened[handle]

    def share(self, memory):
        """Return a handle with the fields of torch's ``_share_cuda_``."""
        piece = self._piece_of(elem_of(memory))
        handles = sum(piece.handles for piece in list(self._pieces.values()))
        has_event = handles < self._max_event_handles
        if not has_event:
            install().streams.synchronize()
        piece.handles += 1
        handle = piece.segment.path.encode()
        return 0, handle, piece.nbytes, piece.offset, b"counters", 0, b"event", has_event

    def _piece_of(self, elem):
        address = elem.data_ptr()
        if address not in self._pieces:
            nbytes = elem.numel()
            segment = self._segment_for(nbytes)
            piece = Piece(segment, segment.take(nbytes), nbytes)
            mapped = piece.map(self._free).copy_(elem)
            address = mapped.data_ptr()
            self._pieces[address] = piece
            # The work that the memory is still to get goes to where it is from now on.
            elem.set_(mapped)
        return self._pieces[address]

    def _free(self, address):
        self._pieces.pop(address).overwrite()

    def _segment_for(self, nbytes):
        if nbytes > _SMALL:
            return Segment(nbytes)
        if not self._small.has_room(nbytes):
            self._small = Segment(_SEGMENT)
        return self._small

    def _open_storage_memory(self, handle, nbytes, offset, counters, counter, event, opens_event):
        """Do what torch's ``_new_shared_cuda`` does with these fields.

        Its event stays open, as torch destroys none, and the caller must wait by other means.
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
        self._over.set()
        self._server.join()

    def _serve(self):
        while not self._over.wait(_PAUSE):
            self.packed.serve()
            self.read.serve()


def install_ipc():
    """Give the device that runs late what it shares; once a process is enough."""
    ipc.IPC_FACTORIES["late"] = lambda _: LateIpc()
