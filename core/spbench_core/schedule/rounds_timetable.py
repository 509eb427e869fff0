"""Timetables of an interleaved step, in which each group of devices has several stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

from spbench_core.schedule.orders import interleaved_order
from spbench_core.schedule.timetable import Timed, Timetable


def rounds_timetable(stages: Sequence[Timed], rounds: int, micro_batches: int) -> Timetable:
    """Return the timetable of an interleaved step: each group of devices has several stages.

    A link carries what a group sends to another in the order of the group's passes, outputs and
    gradients alike. After its last pass a group sums the gradients of its stages, one by one.

    Args:
        stages: All of them; those of a group are as far apart as there are groups.
        rounds: Stages of each group.
        micro_batches: A multiple of the number of groups.
    """
    step = _Step(stages, len(stages) // rounds, rounds, micro_batches)
    while step.advance_all():
        pass
    return step.timetable()


def rounds_end(
    stages: Sequence[Timed], rounds: int, micro_batches: int, limit: float = inf
) -> float:
    """Return when an interleaved step ends, or infinity as soon as it must end after a limit.

    Args:
        stages: As for `rounds_timetable`.
        rounds: Stages of each group.
        micro_batches: A multiple of the number of groups.
        limit: Seconds.
    """
    step = _Step(stages, len(stages) // rounds, rounds, micro_batches)
    limit *= 1.0 + _LEEWAY
    while step.advance_all():
        if step.least_end() > limit:
            return inf
    return step.timetable().end_s


_LEEWAY = 1e-9
"""More than what rounding can add to the sum of a group's passes."""


@lru_cache(maxsize=64)
def _order(
    group: int, groups: int, rounds: int, micro_batches: int
) -> tuple[tuple[bool, int, int], ...]:
    """Return the tasks of a group: whether it is a forward pass, the stage and the micro-batch."""
    order = interleaved_order(group, groups, rounds, range(micro_batches))
    return tuple((task.kind == "forward", task.stage, task.micro_batch) for task in order)


@dataclass(slots=True)
class _Passes:
    """The passes of a stage in one direction while an interleaved step is simulated.

    Attributes:
        seconds: Of each.
        ready: When their inputs are there.
        times: When they start; of backward passes when they end.
        send: The seconds of each message that follows.
        link: The number of the link that carries it.
        sent: When the messages start.
        following: What gets them; None where there is nothing to send.
        here: Whether that is in the same stage, so that nothing is sent either.
    """

    seconds: float
    ready: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    send: float = 0.0
    link: int = 0
    sent: list[float] = field(default_factory=list)
    following: _Passes | None = None
    here: bool = False


class _Step:
    """The state of an interleaved step while it is simulated.

    Args:
        stages: All of them.
        groups: The number of groups.
        rounds: Stages of each.
        micro_batches: The number of micro-batches.
    """

    def __init__(
        self, stages: Sequence[Timed], groups: int, rounds: int, micro_batches: int
    ) -> None:
        self._stages, self._groups = stages, groups
        self._orders = [_order(group, groups, rounds, micro_batches) for group in range(groups)]
        self._next, self._free = [0] * groups, [0.0] * groups
        self._left = [
            micro_batches * sum(each.forward_s + each.backward_s for each in stages[group::groups])
            for group in range(groups)
        ]
        self._links = [0.0] * groups**2
        self._forward = [_Passes(stage.forward_s) for stage in stages]
        self._backward = [_Passes(stage.backward_s) for stage in stages]
        self._forward[0].ready = [0.0] * micro_batches
        self._forward[-1].following, self._forward[-1].here = self._backward[-1], True
        for at, stage in enumerate(stages[:-1]):
            self._join(self._forward[at], self._forward[at + 1], at, at + 1, stage.send_s)
            self._join(self._backward[at + 1], self._backward[at], at + 1, at, stage.send_s)

    def _join(
        self, before: _Passes, following: _Passes, source: int, target: int, seconds: float
    ) -> None:
        before.following, before.send = following, seconds
        before.link = source % self._groups * self._groups + target % self._groups

    def advance_all(self) -> bool:
        """Run every pass whose input is there, group by group; return whether there was any."""
        return sum(map(self._advance, range(self._groups))) > 0

    def least_end(self) -> float:
        """Return when the step ends at least: a group then runs what is left without a pause."""
        return max(free + left for free, left in zip(self._free, self._left, strict=True))

    def _advance(self, group: int) -> bool:
        order, begun = self._orders[group], self._next[group]
        free, done, links = self._free[group], 0.0, self._links
        at = begun
        for at in range(begun, len(order)):
            forward, stage, micro_batch = order[at]
            passes = (self._forward if forward else self._backward)[stage]
            inputs, seconds = passes.ready, passes.seconds
            if micro_batch >= len(inputs):
                break
            ready = inputs[micro_batch]
            start = ready if ready > free else free
            free = start + seconds
            done += seconds
            passes.times.append(start if forward else free)
            following = passes.following
            if following is None:
                continue
            if passes.here:
                following.ready.append(free)
                continue
            busy = links[passes.link]
            start = free if free > busy else busy
            passes.sent.append(start)
            links[passes.link] = start = start + passes.send
            following.ready.append(start)
        else:
            at = len(order)
        self._next[group], self._free[group] = at, free
        self._left[group] -= done
        return at > begun

    def timetable(self) -> Timetable:
        """Return the timetable, once no group can advance."""
        reduce, ends = [], list(self._free)
        for at, stage in enumerate(self._stages):
            group = at % self._groups
            reduce.append(ends[group])
            ends[group] += stage.all_reduce_s
        return Timetable(
            forward=[passes.times for passes in self._forward],
            backward_end=[passes.times for passes in self._backward],
            send=[passes.sent for passes in self._forward],
            back=[passes.sent for passes in self._backward],
            reduce=reduce,
            end_s=max(ends),
        )
