"""Streams and events of a device, which order its work, wait for it and time it.

A GPU runs launched work later, stream by stream, each in its own order. The host runs it at once:
its one stream is always done. `streams_of` returns the streams of a device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from time import perf_counter
from typing import Any, Protocol

import torch


def is_gpu(device: torch.device) -> bool:
    """Whether a device has memory and streams of its own."""
    return device.type != "cpu"


class DeviceEvent(Protocol):
    """An event: a point in the work of a stream, set by `record`; passed where it was never set."""

    def record(self) -> None:
        """Set it after all work of the current stream so far."""

    def query(self) -> bool:
        """Whether that work is done."""

    def synchronize(self) -> None:
        """Wait until that work is done."""

    def seconds_since(self, earlier: Any) -> float:
        """Return the seconds between two events of this device, both of which have passed."""


class DeviceStreams(Protocol):
    """The streams of a device: the current one, and a second one for copies.

    No method waits for the whole device: while a receive of NCCL is posted, that may take for ever.
    """

    def synchronize(self) -> None:
        """Wait for all work of the current stream."""

    def use_copy_stream(self) -> AbstractContextManager[object]:
        """Return a context in which work is launched on the copy stream."""

    def fork_copy_stream(self) -> None:
        """Let later work of the copy stream wait for all earlier work of the current stream."""

    def join_copy_stream(self) -> None:
        """Let later work of the current stream wait for all earlier work of the copy stream."""

    def event(self, *, timing: bool = False) -> DeviceEvent:
        """Return an event; only one made for ``timing`` tells seconds."""


class HostEvent:
    """An event of the host, which has passed when it is recorded."""

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

    All exchanges share one copy stream: torch has 32 streams and uses them in turn, so that more
    would share theirs with NCCL.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = torch.cuda.Stream(device)

    def synchronize(self) -> None:
        torch.cuda.current_stream(self._device).synchronize()

    def use_copy_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._copies)

    def fork_copy_stream(self) -> None:
        self._copies.wait_stream(torch.cuda.current_stream(self._device))

    def join_copy_stream(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(self._copies)

    def event(self, *, timing: bool = False) -> CudaEvent:
        return CudaEvent(self._device, timing=timing)


def _host_streams(_: torch.device) -> HostStreams:
    return HostStreams()


STREAM_FACTORIES: dict[str, Callable[[torch.device], DeviceStreams]] = {
    "cpu": _host_streams,
    "cuda": CudaStreams,
}
"""Functions that make a device's streams, by its type."""


@cache
def get_streams(device: torch.device) -> DeviceStreams:
    """Return the streams of a device, the same at each call."""
    return STREAM_FACTORIES[device.type](device)


def synchronize_stream(device: torch.device) -> None:
    """Wait until the current stream of a device is done; the host always is."""
    if is_gpu(device):
        get_streams(device).synchronize()


def time_on_device(device: torch.device, body: Callable[[], object]) -> float:
    """Return the seconds of ``body`` until all work that it launches on the device is done.

    The device finishes earlier work first, which does not count.
    """
    synchronize_stream(device)
    start = perf_counter()
    body()
    synchronize_stream(device)
    return perf_counter() - start
