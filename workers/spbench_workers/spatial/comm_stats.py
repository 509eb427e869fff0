"""What communication among the tiles of an image costs this process, counted as it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import perf_counter

Watch = Callable[[], AbstractContextManager[object]]
"""Makes what is entered while an exchange goes on."""


@dataclass(slots=True)
class CommStats:
    """Seconds in halo exchanges and sums over tiles, and what this rank has sent in halos.

    Attributes:
        seconds: What calls took in which nothing else was done: packing, waits, unpacking, sums. A
            halo that travels while the rank computes costs what its start and its end take. By
            the host's clock, which on a GPU tells little: its work of before may be waited for.
        messages: To other ranks, of halos and of their gradients.
        bytes: In all of them together.
        watch: What times exchanges in place of the host's clock; None: nothing does.
    """

    seconds: float = 0.0
    messages: int = 0
    bytes: int = 0
    watch: Watch | None = None

    def timed(self) -> AbstractContextManager[object]:
        """Count the time of what is done inside."""
        return _Timed(self) if self.watch is None else self.watch()

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Let something else time what is exchanged inside."""
        kept, self.watch = self.watch, watch
        try:
            yield
        finally:
            self.watch = kept


class _Timed:
    """A block that the host's clock times."""

    __slots__ = ("_start", "_stats")

    def __init__(self, stats: CommStats) -> None:
        self._stats = stats

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._stats.seconds += perf_counter() - self._start


COMM_STATS = CommStats()
"""Of this process since it started: take the difference of two readings."""
