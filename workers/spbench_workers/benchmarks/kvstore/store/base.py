"""The interface of every store, and its traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spbench_workers.benchmarks.kvstore.store.pushes import Push


@dataclass(frozen=True, slots=True)
class SentTraffic:
    """The bytes and messages that one rank sends in a round.

    Attributes:
        bytes: Bytes that it sends.
        messages: Messages that it sends.
    """

    bytes: int
    messages: int


class Store(Protocol):
    """One rank's part in a store over fixed memory; all ranks of the job run it."""

    @property
    def traffic(self) -> SentTraffic:
        """The traffic of this rank in a round, as passed to MPI."""

    @property
    def pushes(self) -> Sequence[Push]:
        """The pushes of this rank that may be compressed; empty on a server."""

    def round(self) -> None:
        """Push and pull all keys; on a server answer one round of all workers."""

    def settle(self) -> None:
        """Pull the values after all rounds so far, outside the timed rounds.

        In a synchronous store this is a no-op, because each round pulls them.
        """

    def free(self) -> None:
        """Free the requests and windows of MPI. All ranks must call it."""
