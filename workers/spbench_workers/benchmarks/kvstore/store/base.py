"""The interface of every store, and its traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spbench_workers.benchmarks.kvstore.store.pushes import Push


@dataclass(frozen=True, slots=True)
class SentTraffic:
    """The traffic of one rank in a round: what it sends.

    Attributes:
        bytes: Bytes that it sends.
        messages: Messages that it sends.
    """

    bytes: int
    messages: int


class Store(Protocol):
    """One rank's part in a store over fixed memory. All ranks of the job run it together."""

    @property
    def traffic(self) -> SentTraffic:
        """The traffic of this rank in a round, as it hands it to MPI."""

    @property
    def pushes(self) -> Sequence[Push]:
        """The pushes of this rank that may be compressed; none on a server."""

    def round(self) -> None:
        """Push all keys, pull all keys; on a server answer one round of all workers."""

    def settle(self) -> None:
        """Pull the values after all rounds so far; it is not timed.

        In a synchronous store a round has done so, and nothing is left to do.
        """

    def free(self) -> None:
        """Free the requests and windows of MPI. All ranks must call it."""
