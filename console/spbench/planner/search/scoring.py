"""The best candidate so far, by the simulated step time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from spbench.planner.search.candidates import Candidate, Pass, Shape, passes
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.estimate import closed_form
from spbench_core.schedule.orders import INTERLEAVED
from spbench_core.schedule.timetable import rounds_end, timetable

_GAIN = 1.0 - 1e-12
"""What a step must be shorter by to be better: more than rounding."""


class Scores:
    """Drafts as they are found, and the one with the shortest step.

    The closed form is never above the step time, so a candidate is simulated only where its closed
    form is below the shortest step so far.
    """

    def __init__(self, cost_model: CostModel) -> None:
        self.cost_model = cost_model
        self.best: Candidate | None = None
        self.step_s = math.inf
        self.times: Sequence[Pass] = ()
        self._least: dict[tuple[Shape, int], float] = {}

    def micro_batches(self, micro_batch: int) -> int:
        """Return how many micro-batches of this size a step has."""
        return self.cost_model.training.global_batch_size // micro_batch

    def offer(self, shape: Shape, micro_batch: int) -> bool:
        """Take a shape under the best schedule if it is better; return whether it is."""
        return self.offer_all([(shape, micro_batch)])

    def offer_all(self, shapes: Iterable[tuple[Shape, int]], ranked: bool = True) -> bool:
        """Take the best of some shapes and micro-batch sizes, if it is better.

        Args:
            shapes: The shapes and sizes; those that were offered before are left out.
            ranked: Whether `least` and `starts` are to know those, too, that are not better.
        """
        better = False
        bounds = [each for key in shapes for each in self._bounds(key, ranked)]
        for bound, candidate in sorted(bounds, key=lambda each: each[0]):
            if bound >= self.step_s * _GAIN:
                break
            better |= self._take(candidate)
        return better

    def least(self, shape: Shape, micro_batch: int) -> float:
        """Return the least closed form of a shape that was offered; infinite if none fits."""
        return self._least.get((shape, micro_batch), math.inf)

    def starts(self, most: int, interleaved: bool = False) -> list[tuple[Shape, int]]:
        """Return the best shapes so far that differ in stages or micro-batch size.

        Args:
            most: How many.
            interleaved: Whether they are to have several rounds, or one.
        """
        found: dict[tuple[int, int], tuple[float, tuple[Shape, int]]] = {}
        for key, seconds in self._least.items():
            if (key[0].rounds > 1) != interleaved:
                continue
            sort = len(key[0].ends), key[1]
            if sort not in found or seconds < found[sort][0]:
                found[sort] = seconds, key
        return [key for _, key in sorted(found.values(), key=lambda each: each[0])[:most]]

    def _bounds(self, key: tuple[Shape, int], ranked: bool) -> list[tuple[float, Candidate]]:
        """Return the closed form of a shape that is new, under each schedule in which it fits."""
        if key in self._least:
            return []
        shape, micro_batch = key
        found: list[tuple[float, Candidate]] = []
        if not ranked and self._busy(shape, micro_batch) >= self.step_s * _GAIN:
            self._least[key] = math.inf
            return found
        count = self.micro_batches(micro_batch)
        for schedule in shape.schedules(count):
            candidate = Candidate(shape, micro_batch, schedule)
            times = passes(self.cost_model, candidate)
            if times is not None:
                found.append((closed_form(times, schedule, count, shape.rounds), candidate))
        self._least[key] = min((bound for bound, _ in found), default=math.inf)
        return found

    def _busy(self, shape: Shape, micro_batch: int) -> float:
        """Return how long the busiest group runs passes."""
        busy = [0.0] * len(shape.groups)
        for at, (start, end, group) in enumerate(shape.spans):
            sharing = self.cost_model.sharing(group, micro_batch)
            forward, backward = sharing.work.forward, sharing.work.backward
            both = forward[end] - forward[start] + backward[end] - backward[start]
            busy[at % len(busy)] += both / sharing.speed
        return max(busy) * self.micro_batches(micro_batch)

    def _take(self, candidate: Candidate) -> bool:
        times = passes(self.cost_model, candidate)
        assert times is not None  # it has a closed form
        count = self.micro_batches(candidate.micro_batch)
        if candidate.schedule == INTERLEAVED:
            step = rounds_end(times, candidate.shape.rounds, count, self.step_s)
        else:
            step = timetable(times, candidate.schedule, count).end_s
        if step >= self.step_s * _GAIN:
            return False
        self.best, self.step_s, self.times = candidate, step, times
        return True
