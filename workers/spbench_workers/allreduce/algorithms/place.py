"""Where a rank stands in an algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench_core.layout.tiles import bounds
from spbench_workers.allreduce.schedule import Transfer


@dataclass(frozen=True, slots=True)
class AlgorithmRank:
    """One rank's part in an algorithm, and what is reduced.

    Attributes:
        members: The ranks that take part, in the order in which the algorithm is drawn.
        index: Which of them this rank is.
        count: Elements to reduce.
        group: Ranks of a group, where the algorithm has groups.
        chunks: Pieces that follow each other, where the algorithm has them.
    """

    members: Sequence[int]
    index: int
    count: int
    group: int | None = None
    chunks: int | None = None

    @property
    def size(self) -> int:
        """The number of ranks that take part."""
        return len(self.members)

    @property
    def power(self) -> int:
        """The largest power of two that is not above the number of ranks."""
        return 1 << (self.size.bit_length() - 1)

    def whole(self, index: int, add: bool = False) -> Transfer:
        """Return a transfer of all elements, to or from a member."""
        return Transfer(self.members[index], 0, self.count, add)

    def part(self, index: int, chunk: int, parts: int, add: bool = False) -> Transfer:
        """Return a transfer of one of ``parts`` balanced chunks; both indices may go round."""
        peer = self.members[index % self.size]
        return Transfer(peer, *bounds(chunk % parts, parts, self.count), add)


def levels(size: int) -> int:
    """Return how often a group can be halved until one rank is left: ``ceil(log2 size)``."""
    return (size - 1).bit_length()
