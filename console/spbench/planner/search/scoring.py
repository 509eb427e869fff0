"""The best candidate so far, by the simulated step time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from spbench.planner.search.candidates import Candidate, Shape, SizedShape
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


class TimedShape(NamedTuple):
    """A shape and the simulated seconds of its step."""

    step_s: float
    shape: Shape


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
        self._least_bounds: dict[SizedShape, float] = {}
        # Kept to rank shapes: the closed form, where that was enough to rule a schedule out.
        self._step_s_by_schedule: dict[SizedShape, dict[Schedule, float]] = {}
        self._busy_s_of_ruled_out: dict[SizedShape, float] = {}

    def count_micro_batches(self, micro_batch_size: int) -> int:
        """Return the number of micro-batches of this size per step."""
        return self.cost_model.training.global_batch_size // micro_batch_size

    def offer(self, shape: Shape, micro_batch_size: int) -> bool:
        """Take a shape under its best schedule if it is better; return whether it is."""
        return self.offer_all([SizedShape(shape, micro_batch_size)])

    def offer_all(self, shapes: Iterable[SizedShape], ranked: bool = True) -> bool:
        """Take the best of some shapes if it is better; return whether it is.

        Args:
            shapes: Shapes and micro-batch sizes; those that were offered before are skipped.
            ranked: Whether `get_least_bound` and `list_best_shapes` also include shapes near the
                best.
        """
        improved = False
        estimates = [
            estimate for sized_shape in shapes for estimate in self._estimate(sized_shape, ranked)
        ]
        for estimate in sorted(estimates, key=lambda estimate: estimate.bound_s):
            if estimate.bound_s >= self.step_s * _BETTER:
                break
            improved |= self._simulate(estimate)
        return improved

    def get_least_bound(self, shape: Shape, micro_batch_size: int) -> float:
        """Return the least closed form of a shape; infinite if it does not fit."""
        return self._least_bounds.get(SizedShape(shape, micro_batch_size), math.inf)

    def list_best_shapes(self, limit: int, interleaved: bool = False) -> list[SizedShape]:
        """Return the best shapes, one for each number of stages and micro-batch size.

        Args:
            limit: The number of shapes.
            interleaved: Whether to return shapes of several rounds instead of one.
        """
        timed_shapes = (
            (min(step_s_by_schedule.values()), sized_shape)
            for sized_shape, step_s_by_schedule in self._step_s_by_schedule.items()
            if step_s_by_schedule
        )
        best_by_stages_and_size: dict[tuple[int, int], SizedShape] = {}
        for _, sized_shape in sorted(timed_shapes, key=itemgetter(0)):
            shape, size = sized_shape
            is_new = all(shape != other for other, _ in best_by_stages_and_size.values())
            if is_new and (shape.rounds > 1) == interleaved:
                best_by_stages_and_size.setdefault((len(shape.ends), size), sized_shape)
        return list(best_by_stages_and_size.values())[:limit]

    @property
    def shape_count(self) -> int:
        """The number of shapes so far, at each of their micro-batch sizes."""
        return len(self._step_s_by_schedule)

    def find_other_pipeline(self) -> TimedShape | None:
        """Return the fastest pipeline so far with another number of stages than the best.

        Shapes are simulated in the order of their bounds, until no bound is shorter.

        Returns:
            The pipeline; None if no other one of several stages was offered or fits.
        """
        stage_counts = {1, len(self.best.shape.ends) if self.best is not None else 1}
        bounded_shapes = sorted(
            (
                (bound_s, sized_shape)
                for sized_shape, bound_s in self._list_bounds()
                if len(sized_shape.shape.ends) not in stage_counts
            ),
            key=itemgetter(0),
        )
        fastest: TimedShape | None = None
        for bound_s, sized_shape in bounded_shapes:
            limit_s = math.inf if fastest is None else fastest.step_s
            if bound_s >= limit_s:
                break
            step_s = self._simulate_shape(sized_shape, limit_s)
            if step_s < limit_s:
                fastest = TimedShape(step_s, sized_shape.shape)
        return fastest

    def _list_bounds(self) -> Iterator[tuple[SizedShape, float]]:
        """Yield each shape so far with a lower bound on its step."""
        for sized_shape, step_s_by_schedule in self._step_s_by_schedule.items():
            if step_s_by_schedule:
                yield sized_shape, min(step_s_by_schedule.values())
            elif sized_shape in self._busy_s_of_ruled_out:
                yield sized_shape, self._busy_s_of_ruled_out[sized_shape]

    def _simulate_shape(self, sized_shape: SizedShape, limit_s: float) -> float:
        """Return the seconds of the shortest step of a shape; infinite above a limit."""
        shape, size = sized_shape
        micro_batches = self.count_micro_batches(size)
        shortest_s = math.inf
        for schedule, stages in compute_stages_by_schedule(
            self.cost_model, shape, size, shape.list_schedules(micro_batches)
        ):
            bound_s = estimate_step(stages, schedule, micro_batches, shape.rounds)
            if bound_s < min(limit_s, shortest_s):
                step_limit_s = limit_s if schedule == INTERLEAVED else math.inf
                step_s = compute_step_end(
                    stages, schedule, micro_batches, shape.rounds, limit=step_limit_s
                )
                shortest_s = min(shortest_s, step_s)
        return shortest_s

    def _estimate(self, sized_shape: SizedShape, ranked: bool) -> list[_EstimatedCandidate]:
        """Return a new shape with each schedule under which it fits."""
        if sized_shape in self._step_s_by_schedule:
            return []
        shape, micro_batch_size = sized_shape
        busy_s = self._compute_busy_s(shape, micro_batch_size)
        if busy_s >= self.step_s * (_NEAR if ranked else _BETTER):
            self._step_s_by_schedule[sized_shape] = {}
            self._busy_s_of_ruled_out[sized_shape] = busy_s
            return []
        micro_batches = self.count_micro_batches(micro_batch_size)
        stages_by_schedule = compute_stages_by_schedule(
            self.cost_model, shape, micro_batch_size, shape.list_schedules(micro_batches)
        )
        estimates = [
            _EstimatedCandidate(
                estimate_step(stages, schedule, micro_batches, shape.rounds),
                Candidate(shape, micro_batch_size, schedule),
                stages,
            )
            for schedule, stages in stages_by_schedule
        ]
        self._step_s_by_schedule[sized_shape] = {
            estimate.candidate.schedule: estimate.bound_s for estimate in estimates
        }
        self._least_bounds[sized_shape] = min(
            self._step_s_by_schedule[sized_shape].values(), default=math.inf
        )
        return estimates

    def _compute_busy_s(self, shape: Shape, micro_batch_size: int) -> float:
        """Return the seconds per step for which the busiest group runs passes."""
        busy_s_by_group = [0.0] * len(shape.groups)
        for index, (start, end, group) in enumerate(shape.spans):
            cost = self.cost_model.get_stage_cost(group, start, end, micro_batch_size)
            busy_s_by_group[index % len(busy_s_by_group)] += cost.least_s
        return max(busy_s_by_group) * self.count_micro_batches(micro_batch_size)

    def _simulate(self, estimate: _EstimatedCandidate) -> bool:
        """Simulate a candidate; return whether it is the best one now."""
        bound_s, candidate, stages = estimate
        shape, micro_batch_size, schedule = candidate
        micro_batches = self.count_micro_batches(micro_batch_size)
        # Interleaved steps take longest to simulate, so the simulation stops at the limit.
        limit_s = self.step_s if schedule == INTERLEAVED else math.inf
        step_s = compute_step_end(stages, schedule, micro_batches, shape.rounds, limit=limit_s)
        known_s = max(bound_s, self.step_s) if step_s == math.inf else step_s
        self._step_s_by_schedule[SizedShape(shape, micro_batch_size)][schedule] = known_s
        if step_s >= self.step_s * _BETTER:
            return False
        self.best = candidate
        self.step_s = step_s
        self.times = stages
        return True
