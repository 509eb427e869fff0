"""The charts of the page: the distribution of a metric's samples, and their course."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict

from spbench.record.case_state import CaseState
from spbench.record.live_samples import LiveSamples
from spbench.record.metric_names import format_metric_name
from spbench.record.timeline import MetricTimeline
from spbench.stats.histogram import make_bins
from spbench.tui.panes import Pane
from spbench.tui.widgets.histogram import HistogramChart
from spbench.tui.widgets.timeline import TimeLine

MAX_CACHED = 8
"""Metrics of cases and ranks whose samples stay counted after something else was shown."""
MAX_BINS = 60
_PERCENTILES = {"p95": 0.95, "p99": 0.99}
_FOLDS = {"max": "largest of all ranks", "min": "smallest of all ranks"}
_FOLDS |= {"sum": "sum of all ranks", "mean": "mean of all ranks"}


class MetricSamples:
    """A metric's samples in a case, counted as they come, of one rank or folded over all."""

    def __init__(self, case: CaseState, metric: str, rank: int | None) -> None:
        self.case = case
        self.samples = LiveSamples(case, metric, rank)
        self.timeline = MetricTimeline(case, metric, rank)


class SamplesCache:
    """Keeps what was counted last, so that to look again costs only what is new."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str, int | None], MetricSamples] = OrderedDict()

    def get(self, case: CaseState, metric: str, rank: int | None) -> MetricSamples:
        """Return the samples of a metric in a case."""
        key = (id(case), metric, rank)
        if key not in self._kept:
            self._kept[key] = MetricSamples(case, metric, rank)
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_CACHED:
            self._kept.popitem(last=False)
        return self._kept[key]


class ChartPane(Pane):
    """A chart of a metric in its frame."""

    @abstractmethod
    def show(self, samples: MetricSamples, metric: str, rank: int | None) -> None:
        """Show a metric's samples, of one rank or folded over all."""

    @abstractmethod
    def clear(self) -> None:
        """Show that there are no samples."""


class HistogramPane(ChartPane):
    """The histogram in its frame."""

    def __init__(self) -> None:
        super().__init__("samples", HistogramChart(id="histogram"), id="histogram-pane")

    def show(self, counted: MetricSamples, metric: str, rank: int | None) -> None:
        """Show a metric's samples."""
        chart = self.query_one(HistogramChart)
        samples = counted.samples
        samples.update()
        if not samples:
            self.clear()
            return
        drawn = make_bins(samples.values, max(8, min(chart.size.width // 2, MAX_BINS)))
        beyond = f", {drawn.above_range} beyond the bars" if drawn.above_range else ""
        self.set_title(f"{describe_samples(counted.case, metric, rank)}{beyond}")
        marks = {name: samples.values.percentile(part) for name, part in _PERCENTILES.items()}
        marks = {"median": samples.median(), **marks}
        chart.update(drawn.edges, drawn.counts, counted.case.identity.metrics[metric].unit, marks)

    def clear(self) -> None:
        self.set_title("samples")
        self.query_one(HistogramChart).update((), (), "")


class TimeLinePane(ChartPane):
    """The time line in its frame."""

    def __init__(self) -> None:
        super().__init__("time line", TimeLine(id="time-line"), id="time-line-pane")

    def show(self, counted: MetricSamples, metric: str, rank: int | None) -> None:
        """Show a metric, iteration by iteration."""
        chart = self.query_one(TimeLine)
        info = counted.case.identity.metrics[metric]
        values = counted.timeline.points(max(16, 2 * chart.size.width))
        chart.update(values, info.unit, info.better, "", find_limit(counted.case, metric))
        unit = f", in {chart.unit}" if chart.unit not in ("", "1") else ""
        self.set_title(describe_samples(counted.case, metric, rank) + unit)

    def clear(self) -> None:
        self.set_title("time line")
        self.query_one(TimeLine).update((), "", "none", "")


def describe_samples(case: CaseState, metric: str, rank: int | None) -> str:
    """Return the title of a chart: ``time of rank 3, each iteration``."""
    info = case.identity.metrics[metric]
    if rank is not None:
        return f"{format_metric_name(info.name, info.unit)} of rank {rank}, each iteration"
    if metric == "time_ms":
        return "time of the slowest rank, each iteration"
    return f"{format_metric_name(info.name, info.unit)}, {_FOLDS[info.fold]}, each iteration"


def list_metrics(case: CaseState) -> list[str]:
    """Return the metrics of a case that have samples, ``time_ms`` first."""
    known = [
        name
        for name in case.identity.metrics
        if name in case.measured.samples or name in case.measured.values
    ]
    return sorted(known, key=lambda name: name != "time_ms")


def find_limit(case: CaseState, metric: str) -> float | None:
    """Return the limit that the suite sets for a metric, if it does."""
    for expect in (*case.verdict.expectations, *case.identity.expect):
        name, _, _ = expect["metric"].partition(".")
        if name == metric and expect["limit"] is not None:
            return float(expect["limit"])
    return None
