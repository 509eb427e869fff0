"""The charts of the Run page: a histogram and a time line of a metric's samples."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict

from spbench.record.case_state import CaseState
from spbench.record.metric_names import format_metric_name
from spbench.record.timeline import LiveSamples, MetricTimeline
from spbench.stats.histogram import make_bins
from spbench.tui.panes import Pane
from spbench.tui.widgets.histogram import HistogramChart
from spbench.tui.widgets.timeline import TimeLine

MAX_CACHED = 8
"""Number of combinations of case, metric and rank that stay in the cache."""
MAX_BINS = 60
_PERCENTILES = {"p95": 0.95, "p99": 0.99}
_FOLDS = {"max": "largest of all ranks", "min": "smallest of all ranks"}
_FOLDS |= {"sum": "sum of all ranks", "mean": "mean of all ranks"}


class MetricSamples:
    """The samples of a metric in a case, of one rank or reduced over all ranks."""

    def __init__(self, case: CaseState, metric: str, rank: int | None) -> None:
        self.case = case
        self.samples = LiveSamples(case, metric, rank)
        self.timeline = MetricTimeline(case, metric, rank)


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
    """A chart of a metric in a frame."""

    @abstractmethod
    def show(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show the samples of a metric, of one rank or reduced over all ranks."""

    @abstractmethod
    def clear(self) -> None:
        """Show that there are no samples."""


class HistogramPane(ChartPane):
    """The histogram in a frame."""

    def __init__(self) -> None:
        super().__init__("samples", HistogramChart(id="histogram"), id="histogram-pane")

    def show(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show the distribution of the samples."""
        chart = self.query_one(HistogramChart)
        live = samples.samples
        live.update()
        if not live:
            self.clear()
            return
        bins = make_bins(live.values, max(8, min(chart.size.width // 2, MAX_BINS)))
        note = f", {bins.above_range} beyond the bars" if bins.above_range else ""
        self.set_title(f"{describe_samples(samples.case, metric, rank)}{note}")
        marks = {"median": live.median()}
        marks |= {name: live.values.percentile(part) for name, part in _PERCENTILES.items()}
        chart.update(bins.edges, bins.counts, samples.case.identity.metrics[metric].unit, marks)

    def clear(self) -> None:
        self.set_title("samples")
        self.query_one(HistogramChart).update((), (), "")


class TimeLinePane(ChartPane):
    """The time line in a frame."""

    def __init__(self) -> None:
        super().__init__("time line", TimeLine(id="time-line"), id="time-line-pane")

    def show(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show the samples, iteration by iteration."""
        chart = self.query_one(TimeLine)
        spec = samples.case.identity.metrics[metric]
        values = samples.timeline.points(max(16, 2 * chart.size.width))
        chart.update(values, spec.unit, spec.better, "", find_limit(samples.case, metric))
        unit = f", in {chart.unit}" if chart.unit not in ("", "1") else ""
        self.set_title(describe_samples(samples.case, metric, rank) + unit)

    def clear(self) -> None:
        self.set_title("time line")
        self.query_one(TimeLine).update((), "", "none", "")


def describe_samples(case: CaseState, metric: str, rank: int | None) -> str:
    """Return the title of a chart: ``time of rank 3, each iteration``."""
    spec = case.identity.metrics[metric]
    if rank is not None:
        return f"{format_metric_name(spec.name, spec.unit)} of rank {rank}, each iteration"
    if metric == "time_ms":
        return "time of the slowest rank, each iteration"
    return f"{format_metric_name(spec.name, spec.unit)}, {_FOLDS[spec.fold]}, each iteration"


def list_metrics(case: CaseState) -> list[str]:
    """Return the metrics of a case that have samples, ``time_ms`` first."""
    measured = [
        name
        for name in case.identity.metrics
        if name in case.measured.samples or name in case.measured.values
    ]
    return sorted(measured, key=lambda name: name != "time_ms")


def find_limit(case: CaseState, metric: str) -> float | None:
    """Return the limit that the suite sets for a metric; None if there is none."""
    for expect in (*case.verdict.expectations, *case.identity.expect):
        name, _, _ = expect["metric"].partition(".")
        if name == metric and expect["limit"] is not None:
            return float(expect["limit"])
    return None
