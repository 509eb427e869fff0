"""When everything of an interleaved step runs."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.planner.simulation.interleaved import Turn, turns
from spbench.planner.simulation.timetable import Timed, Timetable


def rounds_timetable(stages: Sequence[Timed], rounds: int, micro_batches: int) -> Timetable:
    """Return when everything runs in a step in which each group of devices has several stages.

    A link carries what a group sends to another in the order of the group's passes, outputs and
    gradients alike. After its last pass a group sums the gradients of its stages, one by one.

    Args:
        stages: All of them; those of a group are as far apart as there are groups.
        rounds: Stages of each group.
        micro_batches: A multiple of the number of groups.
    """
    step = _Step(stages, len(stages) // rounds, rounds, micro_batches)
    while sum(map(step.advance, range(step.groups))):
        pass
    return step.timetable()


class _Step:
    """A step on its way.

    Args:
        stages: All of them.
        groups: How many groups there are.
        rounds: Stages of each.
        micro_batches: How many there are.
    """

    def __init__(
        self, stages: Sequence[Timed], groups: int, rounds: int, micro_batches: int
    ) -> None:
        self.groups = groups
        self._stages, self._last = stages, len(stages) - 1
        self._turns = [turns(group, groups, rounds, micro_batches) for group in range(groups)]
        self._next, self._free = [0] * groups, [0.0] * groups
        self._links: dict[tuple[int, int], float] = {}
        self._arrived: list[list[float]] = [[] for _ in stages]
        self._arrived[0] = [0.0] * micro_batches
        self._returned: list[list[float]] = [[] for _ in stages]
        self._forward: list[list[float]] = [[] for _ in stages]
        self._backward_end: list[list[float]] = [[] for _ in stages]
        self._send: list[list[float]] = [[] for _ in stages]
        self._back: list[list[float]] = [[] for _ in stages]

    def advance(self, group: int) -> bool:
        """Run every pass of a group whose input is there; return whether there was any."""
        order, begun = self._turns[group], self._next[group]
        while self._next[group] < len(order) and self._run(group, order[self._next[group]]):
            self._next[group] += 1
        return self._next[group] > begun

    def _run(self, group: int, turn: Turn) -> bool:
        ready = (self._arrived if turn.forward else self._returned)[turn.stage]
        if turn.micro_batch >= len(ready):
            return False
        stage, at = self._stages[turn.stage], turn.stage
        start = max(self._free[group], ready[turn.micro_batch])
        end = start + (stage.forward_s if turn.forward else stage.backward_s)
        self._free[group] = end
        if not turn.forward:
            self._backward_end[at].append(end)
            if at:
                seconds = self._stages[at - 1].send_s
                self._sent(self._back[at], self._returned[at - 1], at, at - 1, end, seconds)
            return True
        self._forward[at].append(start)
        if at == self._last:
            self._returned[at].append(end)
        else:
            self._sent(self._send[at], self._arrived[at + 1], at, at + 1, end, stage.send_s)
        return True

    def _sent(
        self,
        starts: list[float],
        arrivals: list[float],
        source: int,
        target: int,
        ready: float,
        seconds: float,
    ) -> None:
        link = source % self.groups, target % self.groups
        start = max(ready, self._links.get(link, 0.0))
        starts.append(start)
        self._links[link] = start + seconds
        arrivals.append(start + seconds)

    def timetable(self) -> Timetable:
        """Return when all ran, once no group can advance."""
        reduce, ends = [], list(self._free)
        for at, stage in enumerate(self._stages):
            group = at % self.groups
            reduce.append(ends[group])
            ends[group] += stage.all_reduce_s
        return Timetable(
            self._forward, self._backward_end, self._send, self._back, reduce, max(ends)
        )
