"""A stand-in for CUDA IPC on the device that runs late: memory is in files that processes map.

A process's work is done when another process waits for one of its events, as well as when it waits
itself: a thread of the stand-in looks for such waits. As on a GPU, who waits for an event waits for
what had been recorded when it asked. A wait that is missing leaves NaN, or what was there before.

Memory that its process has let go of is overwritten, whoever still has it open.

It shows nothing of CUDA's own handles, nor of peer access between GPUs.
"""

import atexit
import os
import tempfile
import threading
import time
from functools import cache

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from spbench_workers.device import ipc
from standins.late_device import LateTensor, elem_of, install

_PAUSE = 0.0002
"""Seconds between two looks."""
_OVERWRITTEN = 0xFF
"""Each byte of memory that is gone: NaN as a floating-point number."""
_RECORDED, _DONE, _WANTED = range(3)
"""The numbers of an event: records asked for, records done, and the one that is waited for."""


@cache
def _folder():
    return tempfile.TemporaryDirectory(prefix="late-ipc-", dir="/dev/shm")


def _mapped(path, size, dtype):
    return torch.from_file(path, shared=True, size=size, dtype=dtype)


def _bytes(handle):
    path, size = handle
    return _mapped(path, size, torch.uint8)


def _new_file():
    descriptor, path = tempfile.mkstemp(dir=_folder().name)
    os.close(descriptor)
    return path


class OwnEvent:
    """An event of this process."""

    def __init__(self):
        self.path = _new_file()
        self.numbers = _mapped(self.path, 3, torch.int64).zero_()
        self._places = {}

    def record(self):
        count, stream = int(self.numbers[_RECORDED]) + 1, install().current
        stream.ask(lambda: self.numbers[_DONE].fill_(count))
        self._places[count] = stream, stream.asked
        self.numbers[_RECORDED] = count

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
    """What the device shares, as `spbench_workers.device.ipc` has it."""

    def __init__(self):
        self.packed, self.read = OwnEvent(), OwnEvent()
        self._opened = {}
        self._shared = []
        self._over = threading.Event()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()
        atexit.register(self._end)

    def event_handles(self):
        return self.packed.path.encode(), self.read.path.encode()

    def opened_event(self, handle):
        if handle not in self._opened:
            self._opened[handle] = OpenedEvent(handle.decode())
        return self._opened[handle]

    def share(self, memory):
        elem = elem_of(memory)
        storage = StorageWeakRef(elem.untyped_storage())
        for known, handle in self._shared:
            if known == storage:
                return handle
        handle = _new_file(), elem.numel()
        # The work that the memory is still to get goes to where it is from now on.
        elem.set_(_bytes(handle))
        self._shared.append((StorageWeakRef(elem.untyped_storage()), handle))
        return handle

    def opened(self, handle):
        return LateTensor(_bytes(handle))

    def _end(self):
        self._over.set()
        self._server.join()

    def _serve(self):
        while not self._over.wait(_PAUSE):
            self.packed.serve()
            self.read.serve()
            for one in list(self._shared):
                storage, handle = one
                if storage.expired():
                    _bytes(handle).fill_(_OVERWRITTEN)
                    self._shared.remove(one)


def install_ipc():
    """Give the device that runs late what it shares; once a process is enough."""
    ipc.KINDS["late"] = lambda _: LateIpc()
