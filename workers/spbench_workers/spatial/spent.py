"""What communication among the tiles of an image costs this process, counted as it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter


@dataclass(slots=True)
class Spent:
    """Seconds in halo exchanges and sums over tiles, and what this rank has sent in halos.

    Attributes:
        seconds: What calls took in which nothing else was done: packing, waits, unpacking, sums. A
            halo that travels while the rank computes costs what its start and its end take.
        messages: To other ranks, of halos and of their gradients.
        bytes: In all of them together.
    """

    seconds: float = 0.0
    messages: int = 0
    bytes: int = 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time of what is done inside."""
        start = perf_counter()
        yield
        self.seconds += perf_counter() - start


SPENT = Spent()
"""Of this process since it started: take the difference of two readings."""
