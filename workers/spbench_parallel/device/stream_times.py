"""Timing of a GPU's current stream by events, read when all work is done."""

from __future__ import annotations

import torch

from spbench_parallel.device.streams import DeviceEvent, get_streams


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
        last = len(self._names) - 1
        self._events[last].synchronize()
        return [
            (self._names[index], self._events[index + 1].seconds_since(self._events[index]))
            for index in range(last)
        ]
