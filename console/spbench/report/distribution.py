"""Distributions of the times of iterations in one run, or in two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spbench.record.number_formatting import DisplayUnit, choose_unit, format_value
from spbench.report.scale import Scale, fit_sample_scale
from spbench.stats.histogram import Bins, count_in_bins, find_edges
from spbench.stats.sorted_samples import SortedSamples
from spbench_core.number_text import format_quantity


@dataclass(frozen=True, slots=True)
class TimeDistribution:
    """The times of the iterations of a case in one run, in ms.

    They are the times of the slowest rank of each iteration.

    Attributes:
        name: The name of the run in the legend; empty for a single run.
        samples: The times; at least one.
        median: The time of the case, as tables show it.
    """

    name: str
    samples: SortedSamples
    median: float

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile."""
        return self.samples.percentile(0.25), self.samples.percentile(0.75)

    def count_in_bins(self, edges: Sequence[float]) -> Bins:
        """Return the number of times in each bin, and of those beyond the last edge."""
        return count_in_bins(self.samples, edges)

    def describe(self) -> str:
        """Return name, median, quartiles and the number of iterations as text."""
        low, high = (format_value(quartile, "ms") for quartile in self.quartiles)
        count = format_quantity(len(self.samples), "iteration")
        median = format_value(self.median, "ms")
        name = f"{self.name}: " if self.name else ""
        return f"{name}median {median}, quartiles {low} and {high}, {count}"

    def describe_beyond(self, axis: SharedAxis) -> str:
        """Return the number of iterations beyond an axis; empty without any."""
        count = self.count_in_bins((axis.scale.low, axis.scale.high)).above_range
        if not count:
            return ""
        name = f"{self.name}: " if self.name else ""
        largest = format_value(self.samples.largest, "ms")
        return f"{name}{count} beyond the axis, up to {largest}"


@dataclass(frozen=True, slots=True)
class SharedAxis:
    """One axis for the times of one or two runs.

    Attributes:
        scale: The range of the axis, in ms.
        unit: The unit of its numbers.
    """

    scale: Scale
    unit: DisplayUnit

    def find_edges(self, count: int) -> tuple[float, ...]:
        """Return the ends of ``count`` bins, in ms."""
        return find_edges(self.scale.low, self.scale.high, count, log=self.scale.log)


def make_distribution(
    name: str, times_ms: Iterable[float], median: float | None
) -> TimeDistribution | None:
    """Return the distribution of times; None without times.

    Args:
        name: The name of the run in the legend.
        times_ms: The times of the iterations, in any order.
        median: The time of the case; None takes the median of ``times_ms``.
    """
    samples = SortedSamples(times_ms)
    if not len(samples):
        return None
    return TimeDistribution(name, samples, samples.percentile(0.5) if median is None else median)


def fit_axis(distributions: Sequence[TimeDistribution]) -> SharedAxis:
    """Return the axis for all times, except a few far slower than the others.

    Args:
        distributions: At least one.
    """
    scale = fit_sample_scale([distribution.samples for distribution in distributions])
    if scale.high <= scale.low:  # all times are equal
        margin = (abs(scale.low) or 1.0) / 100
        scale = Scale(scale.low - margin, scale.high + margin)
    return SharedAxis(scale, choose_unit((scale.low, scale.high), "ms"))
