"""What one rank sends, receives and adds in an allreduce, as data: step by step, without MPI.

An algorithm is a function that says the steps of one rank. Who runs them is
`spbench_workers.allreduce.stepped`; bytes, messages and rounds are counted from the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """Elements ``first`` up to ``last`` of the result, to or from another rank.

    Attributes:
        peer: The other rank.
        first: The first element.
        last: One beyond the last; equal to ``first`` where there is nothing to send, and then no
            message travels, by agreement of both sides.
        add: Whether what is received is reduced into the result; otherwise it takes its place.
            Of no meaning for what is sent.
    """

    peer: int
    first: int
    last: int
    add: bool = False

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """What a rank does at once: all of it has ended before the rank's next step begins.

    What is sent is the result as the step finds it. What is received with ``add`` is kept aside
    until all transfers have ended and then reduced into the result, in the order of ``receives``;
    no two receives of a step overlap unless all of them add, and what replaces never overlaps
    with what is sent.

    Attributes:
        round: The round of the whole group, from 0; a rank may have none in a round, never two.
        sends: What leaves, at most one transfer to a rank.
        receives: What comes, at most one transfer from a rank.
    """

    round: int
    sends: tuple[Transfer, ...] = ()
    receives: tuple[Transfer, ...] = ()


Schedule = list[ScheduleStep]


@dataclass(frozen=True, slots=True)
class ScheduleCosts:
    """What schedules of several ranks cost: to compare with an algorithm's formulas.

    Attributes:
        rounds: Rounds in which anyone sends.
        messages: Messages that the busiest sender sends.
        elements: Elements that the busiest sender sends.
        added: Elements that the busiest rank reduces.
    """

    rounds: int
    messages: int
    elements: int
    added: int


def work_of(schedules: Sequence[Schedule]) -> ScheduleCosts:
    """Count what the schedules of all ranks of a group do."""
    sent = [[transfer for step in steps for transfer in step.sends] for steps in schedules]
    return ScheduleCosts(
        rounds=len({step.round for steps in schedules for step in steps if _sends(step)}),
        messages=max(sum(transfer.count > 0 for transfer in transfers) for transfers in sent),
        elements=max(sum(transfer.count for transfer in transfers) for transfers in sent),
        added=max(sum(_added(step) for step in steps) for steps in schedules),
    )


def _sends(step: ScheduleStep) -> bool:
    return any(transfer.count for transfer in step.sends)


def _added(step: ScheduleStep) -> int:
    return sum(transfer.count for transfer in step.receives if transfer.add)
