"""The schedule of one rank in an allreduce, as data without MPI.

An algorithm is a function that returns the steps of one rank. `spbench_workers.collectives.stepped`
runs them. Bytes, messages and rounds are counted from the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """A message: elements ``first`` up to ``last``, to or from another rank.

    Attributes:
        peer: The other rank.
        first: The first element.
        last: One beyond the last. If it equals ``first``, neither side has a message.
        add: Whether a received message is reduced into the result; otherwise it replaces it. It has
            no meaning for a sent message.
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
    """One step of a schedule: all its transfers end before the next step begins.

    Sends read the result from the beginning of the step. Receives with ``add`` are stored in
    scratch memory until all transfers have ended, and are then reduced into the result, in the
    order of ``receives``. No two receives of a step overlap unless all of them add, and a receive
    that replaces never overlaps with a send.

    Attributes:
        round: The round of the whole group, from 0; a rank has at most one step in a round.
        sends: Transfers to other ranks, at most one to each.
        receives: Transfers from other ranks, at most one from each.
    """

    round: int
    sends: tuple[Transfer, ...] = ()
    receives: tuple[Transfer, ...] = ()


Schedule = list[ScheduleStep]


@dataclass(frozen=True, slots=True)
class ScheduleCosts:
    """The costs of the schedules of all ranks, to compare with formulas.

    Attributes:
        rounds: Rounds in which any rank sends.
        messages: The largest number of messages that a rank sends.
        elements: The largest number of elements that a rank sends.
        added: The largest number of elements that a rank reduces.
    """

    rounds: int
    messages: int
    elements: int
    added: int


def count_costs(schedules: Sequence[Schedule]) -> ScheduleCosts:
    """Return the costs of the schedules of all ranks, counted step by step."""
    sends_by_rank = [[transfer for step in steps for transfer in step.sends] for steps in schedules]
    return ScheduleCosts(
        rounds=len({step.round for steps in schedules for step in steps if _sends(step)}),
        messages=max(
            sum(transfer.count > 0 for transfer in transfers) for transfers in sends_by_rank
        ),
        elements=max(sum(transfer.count for transfer in transfers) for transfers in sends_by_rank),
        added=max(sum(_count_added(step) for step in steps) for steps in schedules),
    )


def _sends(step: ScheduleStep) -> bool:
    return any(transfer.count for transfer in step.sends)


def _count_added(step: ScheduleStep) -> int:
    return sum(transfer.count for transfer in step.receives if transfer.add)
