"""The best draft so far, by the simulated step time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from spbench.planner.drafts import SCHEDULES, Draft, Pass, Shape, passes
from spbench.planner.estimate import closed_form
from spbench.planner.prices import Prices
from spbench.planner.timetable import timetable

_GAIN = 1.0 - 1e-12
"""What a step must be shorter by to be better: more than rounding."""


class Scores:
    """Drafts as they are found, and the one with the shortest step.

    The closed form is never above the step time, so a draft is simulated only where its closed
    form is below the shortest step so far.
    """

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.best: Draft | None = None
        self.step_s = math.inf
        self.times: Sequence[Pass] = ()
        self._seen: set[tuple[Shape, int]] = set()

    def micro_batches(self, micro_batch: int) -> int:
        """Return how many micro-batches of this size a step has."""
        return self.prices.training.global_batch_size // micro_batch

    def offer(self, shape: Shape, micro_batch: int) -> bool:
        """Take a shape under the best schedule if it is better; return whether it is."""
        if (shape, micro_batch) in self._seen:
            return False
        self._seen.add((shape, micro_batch))
        return self._take(self._bounds(shape, micro_batch))

    def offer_all(self, shapes: Iterable[tuple[Shape, int]]) -> bool:
        """Take the best of some shapes and micro-batch sizes, if it is better."""
        bounds = []
        for shape, micro_batch in shapes:
            if (shape, micro_batch) not in self._seen:
                self._seen.add((shape, micro_batch))
                bounds += self._bounds(shape, micro_batch)
        return self._take(sorted(bounds, key=lambda each: each[0]))

    def _bounds(
        self, shape: Shape, micro_batch: int
    ) -> list[tuple[float, Draft, Sequence[Pass]]]:
        found = []
        for schedule in SCHEDULES[: 1 if len(shape.ends) == 1 else None]:
            draft = Draft(shape, micro_batch, schedule)
            times = passes(self.prices, draft)
            if times is not None:
                bound = closed_form(times, schedule, self.micro_batches(micro_batch))
                found.append((bound, draft, times))
        return found

    def _take(self, bounds: Iterable[tuple[float, Draft, Sequence[Pass]]]) -> bool:
        better = False
        for bound, draft, times in bounds:
            if bound >= self.step_s * _GAIN:
                continue
            count = self.micro_batches(draft.micro_batch)
            step = bound
            if draft.schedule != "gpipe" and len(times) > 1:
                step = timetable(times, draft.schedule, count).end_s
            if step < self.step_s * _GAIN:
                self.best, self.step_s, self.times = draft, step, times
                better = True
        return better
