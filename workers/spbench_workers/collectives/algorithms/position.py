"""The position of a rank in an algorithm, transfers from there, and the fold.

The fold lets an algorithm for a power of two ranks run on any number of them. With ``n`` ranks, the
number exceeds the largest power of two by ``r``. The first ``2r`` ranks form pairs: the even one
sends its elements to the odd one, is idle, and receives the result (Thakur, Rabenseifner and Gropp,
IJHPCA 2005, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spbench_core.layout.tiles import compute_part_bounds
from spbench_workers.collectives.schedule import Schedule, ScheduleStep, Transfer


@dataclass(frozen=True, slots=True)
class AlgorithmRank:
    """One rank's position in an algorithm, and the size of the reduced vector.

    Attributes:
        members: The ranks that take part, by position in the algorithm.
        index: The position of this rank.
        count: Elements to reduce.
        group: Ranks per group, for an algorithm with groups.
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
    def largest_power_of_two(self) -> int:
        """The largest power of two that is not above the number of ranks."""
        return 1 << (self.size.bit_length() - 1)

    def transfer_all(self, index: int, add: bool = False) -> Transfer:
        """Return a transfer of all elements, to or from a member."""
        return Transfer(self.members[index], 0, self.count, add)

    def transfer_chunk(self, index: int, chunk: int, parts: int, add: bool = False) -> Transfer:
        """Return a transfer of one of ``parts`` balanced chunks; both indices wrap around."""
        peer = self.members[index % self.size]
        return Transfer(peer, *compute_part_bounds(chunk % parts, parts, self.count), add)


PowerOfTwoAlgorithm = Callable[[AlgorithmRank, int], Schedule]
"""An algorithm for a power of two ranks, from a position in it and the first round's number."""


def count_levels(size: int) -> int:
    """Return the number of halvings until one rank is left: ``ceil(log2 size)``."""
    return (size - 1).bit_length()


def fold(rank: AlgorithmRank, algorithm: PowerOfTwoAlgorithm, rounds: int) -> Schedule:
    """Return the schedule of an algorithm with the fold around it."""
    extra_ranks = rank.size - rank.largest_power_of_two
    me = rank.index
    if extra_ranks == 0:
        return algorithm(rank, 0)
    if me < 2 * extra_ranks and me % 2 == 0:
        send = ScheduleStep(0, sends=(rank.transfer_all(me + 1),))
        return [send, ScheduleStep(rounds + 1, receives=(rank.transfer_all(me + 1),))]
    members = [*rank.members[1 : 2 * extra_ranks : 2], *rank.members[2 * extra_ranks :]]
    if me >= 2 * extra_ranks:
        return algorithm(AlgorithmRank(members, me - extra_ranks, rank.count), 1)
    receive = ScheduleStep(0, receives=(rank.transfer_all(me - 1, add=True),))
    send_result = ScheduleStep(rounds + 1, sends=(rank.transfer_all(me - 1),))
    return [receive, *algorithm(AlgorithmRank(members, me // 2, rank.count), 1), send_result]
