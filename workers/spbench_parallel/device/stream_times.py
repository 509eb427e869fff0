"""Timing of a GPU's current stream by events, which are read when all work is done."""

from __future__ import annotations

import torch

from spbench_parallel.device.streams import DeviceEvent, get_streams


class StreamTimes:
    """Successive named stretches of the current stream, with an event between any two.

    A stretch begins when the stream has done all earlier work: it holds the work that is launched
    within it, and the time in which the stream is idle. So stretches add up to the time from the
    first event to the last.

    Several threads may begin stretches in turn, as autograd's do: their current stream must be the
    same.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._streams = get_streams(device)
        # Events are recorded again: to make one takes as long as to record it.
        self._events: list[DeviceEvent] = []
        self._names: list[str] = []

    def begin(self, name: str) -> None:
        """Begin the first stretch of a reading; earlier stretches are dropped."""
        self._names.clear()
        self.switch(name)

    def switch(self, name: str) -> None:
        """End the current stretch, and begin another."""
        place = len(self._names)
        if place == len(self._events):
            self._events.append(self._streams.event(timing=True))
        self._events[place].record()
        self._names.append(name)

    def read(self) -> list[tuple[str, float]]:
        """End the last stretch and wait for it; return each one's name and seconds, in order."""
        self.switch("")
        last = len(self._names) - 1
        self._events[last].synchronize()
        return [
            (self._names[place], self._events[place + 1].seconds_since(self._events[place]))
            for place in range(last)
        ]
