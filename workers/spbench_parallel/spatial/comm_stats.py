"""Statistics of this process' communication among the tiles of an image: time and traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import perf_counter

ExchangeTimer = Callable[[], AbstractContextManager[object]]
"""Returns a context manager that is entered around each exchange."""


@dataclass(slots=True)
class CommStats:
    """Time in halo exchanges and sums over tiles, and this rank's traffic of halos.

    Attributes:
        seconds: Time of calls in which nothing else was done: packing, waits, unpacking, sums. Of a
            halo that travels while the rank computes, only start and end count. It is by the
            host's clock, which on a GPU tells little: earlier work may be waited for.
        messages: Messages to other ranks, of halos and of their gradients.
        bytes: Bytes in all of them together.
        buffer_bytes: Bytes of the pieces that the exchanges in being send and receive at a time.
        watch: Times exchanges in place of the host's clock; None: the host's clock does.
    """

    seconds: float = 0.0
    messages: int = 0
    bytes: int = 0
    buffer_bytes: int = 0
    timer: ExchangeTimer | None = None

    def time_exchange(self) -> AbstractContextManager[object]:
        """Count the time of an exchange inside."""
        return _Timed(self) if self.timer is None else self.timer()

    @contextmanager
    def use_timer(self, watch: ExchangeTimer) -> Iterator[None]:
        """Let ``watch`` time the exchanges inside, in place of the host's clock."""
        kept, self.timer = self.timer, watch
        try:
            yield
        finally:
            self.timer = kept


class _Timed:
    """A block timed by the host's clock."""

    __slots__ = ("_start", "_stats")

    def __init__(self, stats: CommStats) -> None:
        self._stats = stats

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._stats.seconds += perf_counter() - self._start


COMM_STATS = CommStats()
"""The statistics of this process since it started: take the difference of two readings."""
