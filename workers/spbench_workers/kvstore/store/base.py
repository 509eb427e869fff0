"""What every store looks like to those who run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spbench_workers.kvstore.store.pushes import Push


@dataclass(frozen=True, slots=True)
class Sent:
    """What one rank sends in a round.

    Attributes:
        bytes: Bytes, and ``messages`` their messages.
    """

    bytes: int
    messages: int


class Store(Protocol):
    """One rank's part in a store over fixed memory. All ranks of the job run it together."""

    @property
    def sent(self) -> Sent:
        """What this rank sends in a round, as it hands it to MPI."""

    @property
    def pushes(self) -> Sequence[Push]:
        """What this rank pushes where it may be compressed; nothing on a server."""

    def round(self) -> None:
        """Push all keys, pull all keys; on a server answer one round of all workers."""

    def settle(self) -> None:
        """Bring every rank what all rounds so far have led to; it never counts as time.

        In a synchronous store a round has done so.
        """

    def free(self) -> None:
        """Give back what MPI holds. All ranks must call it."""
