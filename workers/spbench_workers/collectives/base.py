"""Collectives: names of algorithms, the interface, and the traffic of a rank.

It needs only the standard library, so that entries of benchmarks can import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

ROOTED = (
    "binomial",
    "muji",
    "muji_2",
    "muji_4",
    "muji_8",
    "muji_fallback",
    "flat",
    "two_level",
    "chain",
)
"""Algorithms with a root that has more work than the others; `rotate_roots` moves it."""
SCHEDULED = ("ring", "bidirectional_ring", "recursive_doubling", "rabenseifner", *ROOTED)
"""spbench's algorithms, over messages between two ranks."""
LIBRARIES = ("native", "gloo", "nccl")
"""Allreduces of a library: MPI, and torch.distributed."""

ITEM_BYTES = {"fp32": 4, "fp64": 8, "fp16": 2, "bf16": 2, "int32": 4, "int64": 8}
"""Bytes of a number, by its format."""
MUJI_SIZES = (2, 4, 8)
"""Numbers of ranks for which muji has a tree."""
FIXED_SIZES = {f"muji_{size}": size for size in MUJI_SIZES}
"""Algorithms for only one number of ranks, with that number."""

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


class Collective(Protocol):
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
