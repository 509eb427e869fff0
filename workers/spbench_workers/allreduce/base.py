"""What every way to reduce a vector over ranks looks like to those who run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Mode = Literal["blocking", "persistent", "nonblocking"]


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """What one rank does in one run.

    Attributes:
        bytes: Bytes that it sends.
        messages: Messages that it sends.
        rounds: Rounds in which it sends or receives.
    """

    bytes: int
    messages: int
    rounds: int


class Reduction(Protocol):
    """A collective over fixed memory, made once and run often. All ranks run it together."""

    @property
    def traffic(self) -> RankTraffic | None:
        """What this rank sends in one run; None where the library does not tell."""

    def run(self) -> object:
        """Do it all: when it returns, this rank's result is there."""

    def start(self) -> object:
        """Begin; in mode ``blocking`` do it all. Source and result stay untouched till `wait`."""

    def poll(self) -> bool:
        """Let what was started go on, without waiting; return whether it has ended."""

    def wait(self) -> None:
        """Wait until what was started has ended."""

    def free(self) -> None:
        """Give back what MPI or torch holds. All ranks must call it."""
