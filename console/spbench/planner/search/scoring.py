"""The best candidate so far, by the simulated step time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.estimate import estimate_step
from spbench.planner.search.stage_times import PassTimes, compute_passes_by_schedule
from spbench_core.schedule.orders import INTERLEAVED, Schedule
from spbench_core.schedule.timetable import compute_step_end

_GAIN = 1.0 - 1e-12
"""The factor by which a step must be shorter to be better: more than rounding."""
_NEAR = 1.25
"""The factor by which passes of a shape near the best may take longer than the shortest step."""


class _Priced(NamedTuple):
    """A candidate with the times of its stages, and the closed form of its step."""

    bound_s: float
    candidate: Candidate
    times: Sequence[PassTimes]


class CandidateScores:
    """Drafts as they are found, and the one with the shortest step.

    The closed form is never above the step time, so a candidate is simulated only where its closed
    form is below the shortest step so far.
    """

    def __init__(self, cost_model: CostModel) -> None:
        self.cost_model = cost_model
        self.best: Candidate | None = None
        self.step_s = math.inf
        self.times: Sequence[PassTimes] = ()
        self._least: dict[tuple[Shape, int], float] = {}
        self._steps: dict[tuple[Shape, int], dict[Schedule, float]] = {}
        """By schedule: simulated, or in closed form where that was enough."""

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
            ranked: Whether `least` and `starts` are to know those, too, that are near the best.
        """
        better = False
        priced = [each for key in shapes for each in self._priced(key, ranked)]
        for each in sorted(priced, key=lambda each: each.bound_s):
            if each.bound_s >= self.step_s * _GAIN:
                break
            better |= self._take(each)
        return better

    def least_bound(self, shape: Shape, micro_batch: int) -> float:
        """Return the least closed form of a shape that was offered; infinite if none fits."""
        return self._least.get((shape, micro_batch), math.inf)

    def best_shapes(self, most: int, interleaved: bool = False) -> list[tuple[Shape, int]]:
        """Return the best shapes so far that differ, also in stages or micro-batch size.

        Args:
            most: How many.
            interleaved: Whether they are to have several rounds, or one.
        """
        steps = ((min(each.values()), *key) for key, each in self._steps.items() if each)
        found: dict[tuple[int, int], tuple[Shape, int]] = {}
        for _, shape, size in sorted(steps, key=lambda each: each[0]):
            new = all(shape != other for other, _ in found.values())
            if new and (shape.rounds > 1) == interleaved:
                found.setdefault((len(shape.ends), size), (shape, size))
        return list(found.values())[:most]

    def _priced(self, key: tuple[Shape, int], ranked: bool) -> list[_Priced]:
        """Return a shape that is new with each schedule under which it fits."""
        if key in self._steps:
            return []
        shape, micro_batch = key
        if self._busy(shape, micro_batch) >= self.step_s * (_NEAR if ranked else _GAIN):
            self._steps[key] = {}
            return []
        count = self.micro_batches(micro_batch)
        schedules = shape.schedules(count)
        found = [
            _Priced(
                estimate_step(times, schedule, count, shape.rounds),
                Candidate(shape, micro_batch, schedule),
                times,
            )
            for schedule, times in compute_passes_by_schedule(
                self.cost_model, shape, micro_batch, schedules
            )
        ]
        self._steps[key] = {each.candidate.schedule: each.bound_s for each in found}
        self._least[key] = min(self._steps[key].values(), default=math.inf)
        return found

    def _busy(self, shape: Shape, micro_batch: int) -> float:
        """Return how long the busiest group runs passes."""
        busy = [0.0] * len(shape.groups)
        for at, (start, end, group) in enumerate(shape.spans):
            cost = self.cost_model.stage_cost(group, start, end, micro_batch)
            busy[at % len(busy)] += cost.least_s
        return max(busy) * self.micro_batches(micro_batch)

    def _take(self, priced: _Priced) -> bool:
        """Simulate a candidate; return whether it is the best one now."""
        bound, candidate, times = priced
        shape, micro_batch, schedule = candidate
        count = self.micro_batches(micro_batch)
        limit = self.step_s if schedule == INTERLEAVED else math.inf
        step = compute_step_end(times, schedule, count, shape.rounds, limit=limit)
        known = max(bound, self.step_s) if step == math.inf else step
        self._steps[shape, micro_batch][schedule] = known
        if step >= self.step_s * _GAIN:
            return False
        self.best = candidate
        self.step_s = step
        self.times = times
        return True
