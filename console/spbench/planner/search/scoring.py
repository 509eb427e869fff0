"""The best candidate so far, by the simulated step time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.estimate import estimate_step
from spbench.planner.search.stage_times import CandidateStage, compute_stages_by_schedule
from spbench_core.schedule.orders import INTERLEAVED, Schedule
from spbench_core.schedule.timetable import compute_step_end

_BETTER = 1.0 - 1e-12
"""A step is better if it is shorter by this factor, which is more than rounding."""
_NEAR = 1.25
"""Shapes are ranked if their busiest group works at most this factor times the shortest step."""


class _EstimatedCandidate(NamedTuple):
    """A candidate with its lower bound on the step time and the times of its stages."""

    bound_s: float
    candidate: Candidate
    times: Sequence[CandidateStage]


class CandidateScores:
    """The step times of all candidates so far, and the best candidate.

    The closed form of a step is never above its simulated time, so a candidate is simulated only if
    its closed form is below the shortest step so far.

    Attributes:
        best: The candidate with the shortest step; None if none fits so far.
        step_s: Seconds of its step.
        times: The times of its stages.
    """

    def __init__(self, cost_model: CostModel) -> None:
        self.cost_model = cost_model
        self.best: Candidate | None = None
        self.step_s = math.inf
        self.times: Sequence[CandidateStage] = ()
        self._least_bounds: dict[tuple[Shape, int], float] = {}
        # Simulated seconds by schedule, or the closed form if that was enough to rule it out.
        self._steps: dict[tuple[Shape, int], dict[Schedule, float]] = {}

    def micro_batches(self, micro_batch: int) -> int:
        """Return the number of micro-batches of this size per step."""
        return self.cost_model.training.global_batch_size // micro_batch

    def offer(self, shape: Shape, micro_batch: int) -> bool:
        """Take a shape under its best schedule if it is better; return whether it is."""
        return self.offer_all([(shape, micro_batch)])

    def offer_all(self, shapes: Iterable[tuple[Shape, int]], ranked: bool = True) -> bool:
        """Take the best of some shapes if it is better; return whether it is.

        Args:
            shapes: Shapes and micro-batch sizes; those that were offered before are skipped.
            ranked: Whether `least_bound` and `best_shapes` also include shapes near the best.
        """
        improved = False
        estimates = [estimate for key in shapes for estimate in self._estimate(key, ranked)]
        for estimate in sorted(estimates, key=lambda estimate: estimate.bound_s):
            if estimate.bound_s >= self.step_s * _BETTER:
                break
            improved |= self._simulate(estimate)
        return improved

    def least_bound(self, shape: Shape, micro_batch: int) -> float:
        """Return the least closed form of a shape; infinite if it does not fit."""
        return self._least_bounds.get((shape, micro_batch), math.inf)

    def best_shapes(self, limit: int, interleaved: bool = False) -> list[tuple[Shape, int]]:
        """Return the best shapes, one for each number of stages and micro-batch size.

        Args:
            limit: The number of shapes.
            interleaved: Whether to return shapes of several rounds instead of one.
        """
        steps = ((min(times.values()), *key) for key, times in self._steps.items() if times)
        best: dict[tuple[int, int], tuple[Shape, int]] = {}
        for _, shape, size in sorted(steps, key=lambda step: step[0]):
            is_new = all(shape != other for other, _ in best.values())
            if is_new and (shape.rounds > 1) == interleaved:
                best.setdefault((len(shape.ends), size), (shape, size))
        return list(best.values())[:limit]

    def _estimate(self, key: tuple[Shape, int], ranked: bool) -> list[_EstimatedCandidate]:
        """Return a new shape with each schedule under which it fits."""
        if key in self._steps:
            return []
        shape, micro_batch = key
        if self._busy_s(shape, micro_batch) >= self.step_s * (_NEAR if ranked else _BETTER):
            self._steps[key] = {}
            return []
        count = self.micro_batches(micro_batch)
        times_by_schedule = compute_stages_by_schedule(
            self.cost_model, shape, micro_batch, shape.schedules(count)
        )
        estimates = [
            _EstimatedCandidate(
                estimate_step(times, schedule, count, shape.rounds),
                Candidate(shape, micro_batch, schedule),
                times,
            )
            for schedule, times in times_by_schedule
        ]
        self._steps[key] = {estimate.candidate.schedule: estimate.bound_s for estimate in estimates}
        self._least_bounds[key] = min(self._steps[key].values(), default=math.inf)
        return estimates

    def _busy_s(self, shape: Shape, micro_batch: int) -> float:
        """Return the seconds per step for which the busiest group runs passes."""
        busy = [0.0] * len(shape.groups)
        for index, (start, end, group) in enumerate(shape.spans):
            cost = self.cost_model.stage_cost(group, start, end, micro_batch)
            busy[index % len(busy)] += cost.least_s
        return max(busy) * self.micro_batches(micro_batch)

    def _simulate(self, estimate: _EstimatedCandidate) -> bool:
        """Simulate a candidate; return whether it is the best one now."""
        bound_s, candidate, times = estimate
        shape, micro_batch, schedule = candidate
        count = self.micro_batches(micro_batch)
        # Interleaved steps take longest to simulate, so the simulation stops at the limit.
        limit = self.step_s if schedule == INTERLEAVED else math.inf
        step_s = compute_step_end(times, schedule, count, shape.rounds, limit=limit)
        known_s = max(bound_s, self.step_s) if step_s == math.inf else step_s
        self._steps[shape, micro_batch][schedule] = known_s
        if step_s >= self.step_s * _BETTER:
            return False
        self.best = candidate
        self.step_s = step_s
        self.times = times
        return True
