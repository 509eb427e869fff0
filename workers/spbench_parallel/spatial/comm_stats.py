"""Statistics of this process's work between tiles: communication, gathered maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

ExchangeTimer = Callable[[], AbstractContextManager[object]]
"""Returns a context manager that is entered around each exchange."""


@dataclass(slots=True)
class CommStats:
    """Time in halo exchanges and sums over tiles, and this rank's halo traffic.

    Attributes:
        seconds: Time of calls that only communicate: packing, waits, unpacking, sums. If the rank
            computes during an exchange, only its start and end count. The host's clock is used,
            which is inaccurate on a GPU: a call may wait for earlier work.
        messages: Messages to other ranks, of halos and their gradients.
        bytes: Their total size.
        buffer_bytes: Bytes of the pieces that the existing exchanges send and receive at a time.
        timer: Times exchanges; None: the host's clock.
    """

    seconds: float = 0.0
    messages: int = 0
    bytes: int = 0
    buffer_bytes: int = 0
    timer: ExchangeTimer | None = None

    def time_exchange(self) -> AbstractContextManager[object]:
        """Return a context that counts the time of an exchange."""
        return _HostTimer(self) if self.timer is None else self.timer()

    @contextmanager
    def use_timer(self, timer: ExchangeTimer) -> Iterator[None]:
        """Time the exchanges inside with ``timer`` instead of the host's clock."""
        previous = self.timer
        self.timer = timer
        try:
            yield
        finally:
            self.timer = previous


class _HostTimer:
    """A context timed by the host's clock."""

    __slots__ = ("_start", "_stats")

    def __init__(self, stats: CommStats) -> None:
        self._stats = stats

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._stats.seconds += perf_counter() - self._start


COMM_STATS = CommStats()
"""The statistics since the process started; take the difference of two readings."""


@dataclass(slots=True)
class GatheredTime:
    """Time of forward passes of operators on gathered maps, by the host's clock.

    The gathering itself does not count.

    Attributes:
        seconds: The time since the process started; take the difference of two readings.
    """

    seconds: float = 0.0
    _start: float = 0.0


GATHERED_TIME = GatheredTime()


def start_gathered(values: Any) -> Any:
    """Record the start of an operator on gathered maps; return its input unchanged."""
    GATHERED_TIME._start = perf_counter()
    return values


def stop_gathered(values: Any) -> Any:
    """Record the end of an operator on gathered maps; return its output unchanged."""
    GATHERED_TIME.seconds += perf_counter() - GATHERED_TIME._start
    return values
