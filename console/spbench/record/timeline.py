"""A metric over the iterations of a case, in as many points as there is room to draw."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import pairwise

from spbench.record.case_state import FOLDS, CaseState


class MetricTimeline:
    """A case's metric, iteration by iteration, of one rank or folded over all as it says.

    Repeats stand one after another. What was folded is kept, so that a look costs what is new.
    """

    def __init__(self, case: CaseState, metric: str, rank: int | None = None) -> None:
        info = case.identity.metrics[metric]
        self._case = case
        self._metric = metric
        self._rank = rank
        self._fold = FOLDS[info.fold]
        self._worst: Callable[[Iterable[float]], float] = min if info.better == "higher" else max
        self._folded: dict[int, array[float]] = {}
        self._givers: dict[int, int] = {}

    def points(self, width: int) -> list[float]:
        """Return at most ``width`` values in the metric's unit, each the worst of its slice."""
        values = self._values()
        n = len(values)
        if n <= width:
            return list(values)
        bounds = [index * n // width for index in range(width + 1)]
        return [self._worst(values[low:high]) for low, high in pairwise(bounds)]

    def _values(self) -> array[float]:
        of_metric = self._case.measured.samples.get(self._metric)
        if of_metric is None:
            return self._single()
        if self._rank is not None:
            repeats = of_metric.get(self._rank, {})
            return _joined([repeats[repeat] for repeat in sorted(repeats)])
        by_repeat: dict[int, list[array[float]]] = {}
        for repeats in of_metric.values():
            for repeat, values in repeats.items():
                by_repeat.setdefault(repeat, []).append(values)
        for repeat, rows in by_repeat.items():
            self._fold_new(repeat, rows)
        return _joined([self._folded[repeat] for repeat in sorted(self._folded)])

    def _fold_new(self, repeat: int, rows: list[array[float]]) -> None:
        """Fold the iterations that all ranks have given since."""
        if self._metric == "time_ms":
            rows = self._case.times_of_repeat(repeat)
        if not rows:
            return
        if self._givers.get(repeat) != len(rows):  # a further rank changes every iteration
            self._givers[repeat] = len(rows)
            self._folded[repeat] = array("d")
        folded = self._folded[repeat]
        start = len(folded)
        end = min(map(len, rows))
        if start < end:
            new = zip(*(values[start:end] for values in rows), strict=True)
            folded.extend(map(self._fold, new))

    def _single(self) -> array[float]:
        """Metrics that have one value a repeat."""
        if self._rank is None:
            return array("d", [value for (value,) in self._case.fold_samples(self._metric)])
        values = sorted(self._case.measured.values.get(self._metric, {}).items())
        of_rank = (value for (_, rank), value in values if rank == self._rank)
        return array("d", [value for value in of_rank if value is not None])


def compute_timeline(case: CaseState, metric: str, rank: int | None, width: int) -> list[float]:
    """Return a metric over iterations once; a ``MetricTimeline`` is for looking again and again."""
    return MetricTimeline(case, metric, rank).points(width)


def _joined(parts: list[array[float]]) -> array[float]:
    if len(parts) == 1:
        return parts[0]
    whole = array("d")
    for part in parts:
        whole += part
    return whole
