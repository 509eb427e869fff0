"""The charts of the Run page: samples of a metric, and the shares of a time.

A histogram and a timeline show samples; stacked bars show shares in the details.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from spbench.record.case_state import CaseState
from spbench.record.coordinates import (
    describe_coordinates,
    list_coordinate_names,
    shorten_coordinates,
)
from spbench.record.metric_names import format_metric_name
from spbench.record.number_formatting import format_value
from spbench.record.shares import Shares, compute_all_shares, compute_shares, list_ranks_with_shares
from spbench.record.timeline import LiveSamples, MetricTimeline
from spbench.report.scale import Scale, fit_sample_scale
from spbench.stats.histogram import make_bins
from spbench.stats.sorted_samples import SortedSamples
from spbench.tui.panes import READING, Pane
from spbench.tui.widgets.histogram import MIN_SAMPLES_FOR_BARS, HistogramChart, choose_bin_count
from spbench.tui.widgets.stacked_bars import Bar, StackedBars
from spbench.tui.widgets.timeline import TimelineChart
from spbench_core.number_text import format_quantity

MAX_CACHED = 8
"""Number of combinations of case, metric and rank that stay in the cache."""
MAX_RANK_BARS = 24
"""Most ranks with a bar in the details of a case."""
MIN_OUTLIER_RATIO = 1.5
"""The ratio of mean to median from which a few long iterations decide the mean."""
_PERCENTILES = {"p95": 0.95, "p99": 0.99}
_QUANTILES = {"smallest": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, **_PERCENTILES}
_FOLDS = {
    "max": "largest of all ranks",
    "min": "smallest of all ranks",
    "sum": "sum of all ranks",
    "mean": "mean of all ranks",
}


class MetricSamples:
    """The samples of a metric in a case, of one rank or reduced over all ranks."""

    def __init__(self, case: CaseState, metric: str, rank: int | None) -> None:
        self.case = case
        self.distribution = LiveSamples(case, metric, rank)
        self.timeline = MetricTimeline(case, metric, rank)
        self._metric = metric
        self._rank = rank

    def find_only_rank(self) -> int | None:
        """Return the only rank that has samples, of several; None if more have some."""
        ranks = self.case.measured.samples.get(self._metric, {})
        ranks_with_samples = [rank for rank, repeats in ranks.items() if any(repeats.values())]
        self.distribution.update()
        is_only = len(ranks_with_samples) == 1 and not self.distribution
        return ranks_with_samples[0] if is_only else None

    def describe_missing(self) -> str:
        """Return which ranks have samples; empty unless those of others are missing."""
        counts = {
            rank: sum(map(len, repeats.values()))
            for rank, repeats in self.case.measured.samples.get(self._metric, {}).items()
        }
        self.distribution.update()
        if self.distribution or self._rank is not None or not any(counts.values()):
            return ""
        count = format_quantity(max(counts.values()), "iteration")
        return f"{len(counts)} ranks sent times: up to {count}; arrow keys in Ranks choose one"


class SamplesCache:
    """A cache of recently shown samples, so that an update processes only new ones."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[int, str, int | None], MetricSamples] = OrderedDict()

    def get(self, case: CaseState, metric: str, rank: int | None) -> MetricSamples:
        """Return the samples of a metric in a case."""
        key = (id(case), metric, rank)
        if key not in self._cache:
            self._cache[key] = MetricSamples(case, metric, rank)
        self._cache.move_to_end(key)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return self._cache[key]


class ChartPane(Pane):
    """A chart of a metric in a frame.

    Attributes:
        NAME: The first word of its title.
        case: The case with the samples that are shown; None without samples.
    """

    NAME: ClassVar[str]
    DEFAULT_CSS = "ChartPane.-earlier > * { opacity: 40%; }"
    case: CaseState | None = None

    def __init__(self, chart: HistogramChart | TimelineChart, id: str) -> None:
        super().__init__(self.NAME, chart, id=id)
        chart.empty_text = READING

    @property
    def is_earlier(self) -> bool:
        """Whether the samples are those of an earlier case than the running one."""
        return self.has_class("-earlier")

    def show(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show the samples of a metric, of one rank or reduced over all ranks."""
        self._end_keeping()
        self.show_samples(samples, metric, rank)

    def keep(self, reason: str) -> None:
        """Dim the samples of an earlier case until the running one has some.

        Args:
            reason: Why the running case has no samples.
        """
        if self.case is not None:
            self.add_class("-earlier")
            self.set_title(f"{self.NAME}, earlier case: {self.case.id}")
            self.set_remark(reason)

    def clear(self, case: CaseState | None, reason: str) -> None:
        """Show why a case has no samples."""
        self._end_keeping()
        self.case = None
        self.set_title(self.NAME if case is None else f"{self.NAME} of {case.id}")
        self.empty(reason)

    def _end_keeping(self) -> None:
        if self.is_earlier:
            self.remove_class("-earlier")
            self.set_remark("")

    @abstractmethod
    def show_samples(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show the samples of a metric, of one rank or reduced over all ranks."""

    @abstractmethod
    def empty(self, reason: str) -> None:
        """Show why there are no samples."""


class HistogramPane(ChartPane):
    """The histogram in a frame."""

    NAME = "Histogram"

    def __init__(self, name: str) -> None:
        super().__init__(HistogramChart(id=name), f"{name}-pane")

    def show_samples(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show the distribution of the samples."""
        chart = self.query_one(HistogramChart)
        live = samples.distribution
        live.update()
        if not live:
            self.clear(samples.case, "no samples")
            return
        self.case = samples.case
        unit = samples.case.identity.metrics[metric].unit
        subject = describe_samples(samples.case, metric, rank)
        self.set_title(f"Histogram of {samples.case.id}: {subject}")
        if len(live) < MIN_SAMPLES_FOR_BARS:
            edges = (live.values.smallest, live.values.largest)
            chart.update(edges, (len(live),), unit, few=list(live.values))
            return
        log = fit_sample_scale([live.values]).log
        bars_width = chart.size.width - len(str(len(live))) - 1
        bin_count = choose_bin_count(len(live), bars_width)
        bins = make_bins(live.values, bin_count, log=log)
        value_by_mark = {"median": live.median()}
        value_by_mark |= {name: live.values.percentile(part) for name, part in _PERCENTILES.items()}
        quantiles = {name: live.values.percentile(part) for name, part in _QUANTILES.items()}
        # The same in list, caption and tables: the median of the repeats' medians.
        has_other_median = quantiles["median"] != live.median()
        quantiles["median"] = live.median()
        chart.update(
            bins.edges,
            bins.counts,
            unit,
            value_by_mark,
            quantiles={**quantiles, "largest": live.values.largest},
            above_range=bins.above_range,
            largest=live.values.largest,
            log=log,
            median_name="median of repeats" if has_other_median else "median",
        )

    def empty(self, reason: str) -> None:
        chart = self.query_one(HistogramChart)
        if chart.count_stops() or chart.empty_text != reason:
            chart.empty_text = reason
            chart.update((), (), "")


class TimelinePane(ChartPane):
    """The timeline in a frame."""

    NAME = "Iterations"

    def __init__(self) -> None:
        super().__init__(TimelineChart(id="timeline"), "timeline-pane")

    def show_samples(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show the samples, iteration by iteration."""
        self.case = samples.case
        chart = self.query_one(TimelineChart)
        spec = samples.case.identity.metrics[metric]
        values = samples.timeline.points(max(16, 2 * chart.size.width))
        points = SortedSamples(value for value in values if math.isfinite(value))
        axis = fit_sample_scale([points]) if points else None
        live = samples.distribution
        live.update()
        x_name = "iteration" if metric in samples.case.measured.samples else "repeat"
        chart.update(
            values,
            spec.unit,
            spec.better,
            "",
            find_limit(samples.case, metric),
            axis=axis,
            # A point is the worst of a slice, so that counts are those of the iterations.
            above_range=_count_above(live.values if live else points, axis),
            x_name=x_name,
            x_count=samples.timeline.count,
        )
        subject = describe_samples(samples.case, metric, rank)
        self.set_title(f"{x_name.title()}s of {samples.case.id}: {subject}")

    def empty(self, reason: str) -> None:
        chart = self.query_one(TimelineChart)
        if chart.count_stops() or chart.empty_text != reason:
            chart.empty_text = reason
            chart.update((), "", "none", "")


def describe_samples(case: CaseState, metric: str, rank: int | None) -> str:
    """Return the subject of a chart: ``time of rank 3``."""
    spec = case.identity.metrics[metric]
    if rank is not None:
        return f"{format_metric_name(spec.name, spec.unit)} of rank {rank}"
    if metric == "time_ms":
        return "slowest rank"
    return f"{format_metric_name(spec.name, spec.unit)}, {_FOLDS[spec.fold]}"


def _count_above(samples: SortedSamples, axis: Scale | None) -> int:
    """Return the number of samples beyond the end of an axis."""
    if axis is None or axis.high >= samples.largest:
        return 0
    return len(samples) - samples.count_below(axis.high)


def list_metrics(case: CaseState) -> list[str]:
    """Return the metrics of a case that have samples, ``time_ms`` first."""
    measured = [
        name
        for name in case.identity.metrics
        if name in case.measured.samples or name in case.measured.repeat_values
    ]
    return sorted(measured, key=lambda name: name != "time_ms")


def find_limit(case: CaseState, metric: str) -> float | None:
    """Return the limit that the suite sets for a metric; None if there is none."""
    for expect in (*case.execution.expectations, *case.identity.expect):
        name, _, _ = expect["metric"].partition(".")
        if name == metric and expect["limit"] is not None:
            return float(expect["limit"])
    return None


@dataclass(frozen=True, slots=True)
class BarGroup:
    """The bars of a metric: those of all ranks together, and of single ranks.

    Attributes:
        median: The median of the metric, in its unit; None if it is unknown.
    """

    total: Shares
    bars: Sequence[Bar]
    median: float | None = None

    def describe_outliers(self) -> str:
        """Return that a few long iterations decide the shares, if they do."""
        if self.median is None or self.total.mean < MIN_OUTLIER_RATIO * self.median:
            return ""
        median_text = format_value(self.median, self.total.unit)
        return f"median {median_text}: a few long iterations decide mean and parts"

    def make_chart(self) -> StackedBars:
        """Return a chart of the bars."""
        chart = StackedBars()
        self.update(chart)
        return chart

    def update(self, chart: StackedBars) -> None:
        """Show the bars in a chart."""
        chart.update([*self.total.parts], self.bars, self.total.remainder)


def compute_case_bars(case: CaseState) -> list[BarGroup]:
    """Return the bars of each metric with shares."""
    ranks = list_ranks_with_shares(case)
    shown_ranks = ranks[:MAX_RANK_BARS] if len(ranks) > 1 else []
    labels = list(_label_ranks(case, shown_ranks))
    groups = []
    for total in compute_all_shares(case):
        shares_of_ranks = [compute_shares(case, total.metric, rank) for rank in shown_ranks]
        labelled_shares = zip(labels, shares_of_ranks, strict=True)
        summary = case.summary(total.metric)
        group = _group_bars(total, [("all ranks", total), *labelled_shares])
        groups.append(replace(group, median=summary.p50 if summary is not None else None))
    return groups


def compute_rank_bars(case: CaseState, rank: int) -> list[BarGroup]:
    """Return the bars of each metric with shares, of the rank and of all ranks."""
    groups = []
    for total in compute_all_shares(case):
        rank_shares = compute_shares(case, total.metric, rank)
        groups.append(_group_bars(total, [(f"rank {rank}", rank_shares), ("all ranks", total)]))
    return groups


def count_bars(case: CaseState) -> int:
    """Return the largest number of bars that a metric may have; 0 without parts."""
    if not any(metric.part_of for metric in case.identity.metrics.values()):
        return 0
    return 1 + min(case.identity.np if case.identity.np > 1 else 0, MAX_RANK_BARS)


def _group_bars(total: Shares, labelled_shares: list[tuple[str, Shares | None]]) -> BarGroup:
    """Return the bars of labelled shares; a rank without shares has no bar."""
    bars = [
        Bar(label, [*shares.parts.values()])
        for label, shares in labelled_shares
        if shares is not None
    ]
    return BarGroup(total, bars)


def _label_ranks(case: CaseState, ranks: list[int]) -> Iterator[str]:
    """Yield a label for each rank, with the coordinates that differ between ranks."""
    coordinates = list_coordinate_names(case.identity.coordinates)
    differing_names = {coordinate.name for coordinate in coordinates if coordinate.differs}
    for rank in ranks:
        recorded = case.measured.ranks.get(rank)
        text_by_name = shorten_coordinates(recorded.coordinates) if recorded is not None else {}
        shown = {name: text for name, text in text_by_name.items() if name in differing_names}
        yield f"rank {rank} {describe_coordinates(shown)}".rstrip()


def describe_missing_bars(case: CaseState) -> str:
    """Return a message on ranks without a bar; empty if all ranks have one."""
    ranks = list_ranks_with_shares(case)
    if len(ranks) <= MAX_RANK_BARS:
        return ""
    return f"of the first {MAX_RANK_BARS} of {len(ranks)} ranks; a rank's own details have its bar"
