"""The position of a rank in an algorithm, and transfers from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench_core.layout.tiles import part_bounds
from spbench_workers.collectives.schedule import Transfer


@dataclass(frozen=True, slots=True)
class AlgorithmRank:
    """One rank's position in an algorithm, and the size of what is reduced.

    Attributes:
        members: The ranks that take part, by position in the algorithm.
        index: The position of this rank.
        count: Elements to reduce.
        group: Ranks of a group, for an algorithm with groups.
        chunks: The number of chunks, for a pipelined algorithm.
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

    def transfer_all(self, index: int, add: bool = False) -> Transfer:
        """Return a transfer of all elements, to or from a member."""
        return Transfer(self.members[index], 0, self.count, add)

    def transfer_chunk(self, index: int, chunk: int, parts: int, add: bool = False) -> Transfer:
        """Return a transfer of one of ``parts`` balanced chunks; both indices wrap around."""
        peer = self.members[index % self.size]
        return Transfer(peer, *part_bounds(chunk % parts, parts, self.count), add)


def levels(size: int) -> int:
    """Return the number of halvings until one rank is left: ``ceil(log2 size)``."""
    return (size - 1).bit_length()
