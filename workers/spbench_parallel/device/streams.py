"""Streams and events of a device: they order its work, wait for it and time it.

A GPU runs launched work later, in order per stream. The host runs work at once, so its only stream
is always done. `get_streams` returns the streams of a device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from time import perf_counter
from typing import Any, Protocol

import torch


def is_gpu(device: torch.device) -> bool:
    """Return whether a device has its own memory and streams."""
    return device.type != "cpu"


class DeviceEvent(Protocol):
    """A point in the work of a stream, set by `record`; passed if it was never set."""

    def record(self) -> None:
        """Set the event after all work of the current stream so far."""

    def query(self) -> bool:
        """Return whether that work is done."""

    def synchronize(self) -> None:
        """Wait until that work is done."""

    def seconds_since(self, earlier: Any) -> float:
        """Return the seconds between two events of this device; both must have passed."""


class DeviceStreams(Protocol):
    """The streams of a device: the current stream, and a second one for copies.

    No method waits for the whole device: that may never return while a receive of NCCL is posted.
    """

    def synchronize(self) -> None:
        """Wait for all work of the current stream."""

    def use_copy_stream(self) -> AbstractContextManager[object]:
        """Return a context that launches work on the copy stream."""

    def fork_copy_stream(self) -> None:
        """Make later work of the copy stream wait for earlier work of the current stream."""

    def join_copy_stream(self) -> None:
        """Make later work of the current stream wait for earlier work of the copy stream."""

    def event(self, *, timing: bool = False) -> DeviceEvent:
        """Return an event; `seconds_since` needs events made with ``timing``."""


class HostEvent:
    """An event of the host, which passes when it is recorded."""

    def __init__(self) -> None:
        self._time = 0.0

    def record(self) -> None:
        self._time = perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def seconds_since(self, earlier: HostEvent) -> float:
        return self._time - earlier._time


class HostStreams:
    """The streams of the host: all work is done when a call returns."""

    def synchronize(self) -> None:
        pass

    def use_copy_stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def fork_copy_stream(self) -> None:
        pass

    def join_copy_stream(self) -> None:
        pass

    def event(self, *, timing: bool = False) -> HostEvent:
        return HostEvent()


class CudaEvent:
    """An event of a GPU."""

    def __init__(self, device: torch.device, *, timing: bool) -> None:
        self._device = device
        self._event = torch.cuda.Event(enable_timing=timing)

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def query(self) -> bool:
        return bool(self._event.query())

    def synchronize(self) -> None:
        self._event.synchronize()

    def seconds_since(self, earlier: CudaEvent) -> float:
        return float(earlier._event.elapsed_time(self._event)) / 1000.0


class CudaStreams:
    """The streams of a GPU.

    All exchanges share one copy stream. Torch has a pool of 32 streams and assigns them in turn:
    with more, copies would share a stream with NCCL.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copy_stream = torch.cuda.Stream(device)

    def synchronize(self) -> None:
        torch.cuda.current_stream(self._device).synchronize()

    def use_copy_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._copy_stream)

    def fork_copy_stream(self) -> None:
        self._copy_stream.wait_stream(torch.cuda.current_stream(self._device))

    def join_copy_stream(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(self._copy_stream)

    def event(self, *, timing: bool = False) -> CudaEvent:
        return CudaEvent(self._device, timing=timing)


def _host_streams(_: torch.device) -> HostStreams:
    return HostStreams()


STREAM_FACTORIES: dict[str, Callable[[torch.device], DeviceStreams]] = {
    "cpu": _host_streams,
    "cuda": CudaStreams,
}
"""Functions that create a device's streams, by device type."""


@cache
def get_streams(device: torch.device) -> DeviceStreams:
    """Return the streams of a device; each call returns the same object."""
    return STREAM_FACTORIES[device.type](device)


def synchronize_stream(device: torch.device) -> None:
    """Wait for the current stream of a device; on the host return at once."""
    if is_gpu(device):
        get_streams(device).synchronize()


def time_on_device(device: torch.device, body: Callable[[], object]) -> float:
    """Return the seconds of ``body`` until all work that it launches is done.

    Earlier work of the device is finished first and does not count.
    """
    synchronize_stream(device)
    start_seconds = perf_counter()
    body()
    synchronize_stream(device)
    return perf_counter() - start_seconds


class StreamTimes:
    """Successive named spans of the current stream, separated by events.

    A span begins when the stream has done all earlier work. It contains the work launched within it
    and idle time of the stream. The spans add up to the time from the first event to the last.

    Several threads may begin spans in turn, as autograd's do, if they have the same current stream.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._streams = get_streams(device)
        # Events are reused: creating one takes as long as recording it.
        self._events: list[DeviceEvent] = []
        self._names: list[str] = []

    def begin(self, name: str) -> None:
        """Begin the first span of a reading, and drop all earlier spans."""
        self._names.clear()
        self.switch(name)

    def switch(self, name: str) -> None:
        """End the current span and begin another one."""
        index = len(self._names)
        if index == len(self._events):
            self._events.append(self._streams.event(timing=True))
        self._events[index].record()
        self._names.append(name)

    def read(self) -> list[tuple[str, float]]:
        """End the last span and wait for it; return name and seconds of each, in order."""
        self.switch("")
        last_index = len(self._names) - 1
        self._events[last_index].synchronize()
        return [
            (self._names[index], self._events[index + 1].seconds_since(self._events[index]))
            for index in range(last_index)
        ]
