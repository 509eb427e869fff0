"""Streams and events of a device: what orders its work, waits for it and times it.

A GPU does what it is asked for later, stream by stream, each in its own order. The host does it at
once: its one stream is always done. `streams_of` returns what a device has.
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
    """A point in the work of a stream, set by `record`; one that was never set has passed."""

    def record(self) -> None:
        """Set it after all that the current stream was asked for until now."""

    def query(self) -> bool:
        """Whether that has been done."""

    def synchronize(self) -> None:
        """Return when it has been done."""

    def seconds_since(self, earlier: Any) -> float:
        """Return the seconds between two events of this device, both of which have passed."""


class DeviceStreams(Protocol):
    """The streams of a device: the current one, and one beside it for copies.

    Nothing here waits for the whole device: while a receive of NCCL is posted, that may take for
    ever.
    """

    def finish(self) -> None:
        """Wait for what the current stream was asked for."""

    def copying(self) -> AbstractContextManager[object]:
        """Put on the copy stream what is asked of the device within the block."""

    def follow(self) -> None:
        """Let what comes on the copy stream wait for all that the current stream was asked for."""

    def lead(self) -> None:
        """Let what comes on the current stream wait for all that the copy stream was asked for."""

    def event(self, *, timing: bool = False) -> DeviceEvent:
        """Return an event; only one made for ``timing`` tells seconds."""


class HostEvent:
    """A point in the work of the host, which has passed when it is set."""

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
    """The host: everything is done when the call returns."""

    def finish(self) -> None:
        pass

    def copying(self) -> AbstractContextManager[object]:
        return nullcontext()

    def follow(self) -> None:
        pass

    def lead(self) -> None:
        pass

    def event(self, *, timing: bool = False) -> HostEvent:
        return HostEvent()


class CudaEvent:
    """A point in the work of a GPU's stream."""

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
    """A GPU's streams.

    All exchanges share one copy stream: torch has 32 streams, and deals them in turn, so that more
    would come to share theirs with NCCL's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = torch.cuda.Stream(device)

    def finish(self) -> None:
        torch.cuda.current_stream(self._device).synchronize()

    def copying(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._copies)

    def follow(self) -> None:
        self._copies.wait_stream(torch.cuda.current_stream(self._device))

    def lead(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(self._copies)

    def event(self, *, timing: bool = False) -> CudaEvent:
        return CudaEvent(self._device, timing=timing)


def _host_streams(_: torch.device) -> HostStreams:
    return HostStreams()


KINDS: dict[str, Callable[[torch.device], DeviceStreams]] = {
    "cpu": _host_streams,
    "cuda": CudaStreams,
}
"""Makers of a device's streams, by its type."""


@cache
def streams_of(device: torch.device) -> DeviceStreams:
    """Return the streams of a device, the same at each call."""
    return KINDS[device.type](device)


def finish(device: torch.device) -> None:
    """Wait until the current stream of a device is done; the host always is."""
    if is_gpu(device):
        streams_of(device).finish()


def seconds_of(device: torch.device, body: Callable[[], object]) -> float:
    """Return the seconds from here until all that ``body`` asks of the device is done.

    What was asked for before is waited for first, and does not count.
    """
    finish(device)
    start = perf_counter()
    body()
    finish(device)
    return perf_counter() - start
