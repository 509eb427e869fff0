"""The interface of a collective over fixed memory, and a rank's traffic in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Mode = Literal["blocking", "persistent", "nonblocking"]


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """The traffic of one rank in one run.

    Attributes:
        bytes: Bytes that it sends.
        messages: Messages that it sends.
        rounds: Rounds in which it sends or receives.
    """

    bytes: int
    messages: int
    rounds: int


class Reduction(Protocol):
    """A collective over fixed memory, opened once and run often by all ranks."""

    @property
    def traffic(self) -> RankTraffic | None:
        """The traffic of this rank in one run; None if the library does not report it."""

    def run(self) -> object:
        """Run the collective; when it returns, this rank's result is complete."""

    def start(self) -> object:
        """Start the collective, or in mode ``blocking`` run it.

        Source and result must not be used until `wait`.
        """

    def poll(self) -> bool:
        """Let the started collective progress, without waiting.

        Return whether it has ended.
        """

    def wait(self) -> None:
        """Wait until the started collective has ended."""

    def free(self) -> None:
        """Free the resources of MPI or torch. All ranks must call it."""
