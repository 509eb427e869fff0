"""Times of a GPU's current stream, read when its work is done: nothing waits in between."""

from __future__ import annotations

import torch

from spbench_workers.device.streams import DeviceEvent, streams_of


class StreamTimes:
    """Stretches of the current stream, one after the other, each under a name.

    An event stands between two of them. A stretch begins when the stream has done all that it was
    asked for before: it holds the work that it was asked for within, and the time in which it had
    nothing to do meanwhile. So stretches add up to the time from the first event to the last.

    Threads may take turns in asking for stretches, as autograd's do: the current stream of all of
    them must be the same.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._streams = streams_of(device)
        # Kept and set again at each reading: to make an event takes as long as to set it.
        self._events: list[DeviceEvent] = []
        self._names: list[str] = []

    def begin(self, name: str) -> None:
        """Begin with a stretch, and forget those before."""
        self._names.clear()
        self.turn(name)

    def turn(self, name: str) -> None:
        """End the stretch, and begin another."""
        place = len(self._names)
        if place == len(self._events):
            self._events.append(self._streams.event(timing=True))
        self._events[place].record()
        self._names.append(name)

    def read(self) -> list[tuple[str, float]]:
        """End the last stretch and wait for it; return each one's name and seconds, in order."""
        self.turn("")
        last = len(self._names) - 1
        self._events[last].synchronize()
        return [
            (self._names[place], self._events[place + 1].seconds_since(self._events[place]))
            for place in range(last)
        ]
