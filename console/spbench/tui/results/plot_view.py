"""A metric over runs, or over a swept parameter."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from spbench.record.metric_names import format_folded_name
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.series import build_parameter_series, build_run_series, find_swept_parameters
from spbench.tui.results.plot_words import (
    build_parameter_points,
    build_runs_points,
    choose_plot_unit,
    describe_over_parameter,
    describe_over_runs,
    format_axis_title,
)
from spbench.tui.widgets.plot import Plot, PlotSeries


class PlotView(Vertical):
    """A plot of a metric of a case, with a title and the same figures in words."""

    HELP: ClassVar[str] = """\
A metric of the case under the cursor of the cases: over the runs that the filter shows, or, within
the run under the cursor, over a parameter that the suite sweeps, with a series for each
combination of the others. Each point is a median; its line goes from the least to the p95.
m shows the next metric, p the next parameter, n and N the next case and the one before."""
    DEFAULT_CSS = """
    PlotView #plotted { height: auto; max-height: 3; }
    PlotView Plot { height: 1fr; min-height: 6; }
    PlotView VerticalScroll { height: auto; max-height: 30%; scrollbar-size-vertical: 1; }
    .-short PlotView VerticalScroll { max-height: 2; }
    PlotView #plot-words { height: auto; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__(id="plot-view")
        self._runs: Sequence[RecordedRun] = ()
        self._run: RecordedRun | None = None
        self._case: CasePart | None = None
        self._metric = ""
        self._parameter = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="plotted", markup=False)
        yield Plot(id="plot")
        with VerticalScroll(can_focus=False):
            yield Static("", id="plot-words", markup=False)

    @property
    def chart(self) -> Plot:
        """The plot itself."""
        return self.query_one(Plot)

    def show_runs(self, runs: Sequence[RecordedRun], case: CasePart | None) -> None:
        """Plot a case's metric over runs."""
        self._runs = runs
        self._run = None
        self._case = case
        self._draw()

    def show_parameter(self, run: RecordedRun, case: CasePart | None) -> None:
        """Plot the metric of a case, and of those with its name, over a swept parameter."""
        self._run = run
        self._case = case
        self._draw()

    def next_metric(self) -> None:
        """Show the next metric that the case has."""
        self._metric = _after(self._metric, list(self._case.metrics) if self._case else [])
        self._draw()

    def next_parameter(self) -> None:
        """Show the metric over the next parameter that the case's name sweeps."""
        self._parameter = _after(self._parameter, self._swept())
        self._draw()

    def show_nothing(self, why: str) -> None:
        """Say why there is no plot."""
        self._show(why, [], "", "", [])

    def _swept(self) -> list[str]:
        return find_swept_parameters(self._run, self._case.name) if self._run and self._case else []

    def _draw(self) -> None:
        if self._case is None or not self._case.metrics:
            self.show_nothing(f"{self._case.id} measured nothing" if self._case else "no case")
            return
        self._metric = _kept(self._metric, list(self._case.metrics))
        if self._run is None:
            self._over_runs(self._case)
        else:
            self._over_parameter(self._run, self._case)

    def _over_runs(self, case: CasePart) -> None:
        now = time.time()
        series = build_run_series(self._runs, case.id, self._metric)
        if not series.points:
            self.show_nothing(f"no run that is shown has {_title(self._metric, case)} of {case.id}")
            return
        head = f"{_title(self._metric, case)}{_which('m', self._metric, case.metrics)} of {case.id}"
        words = describe_over_runs(series, now)
        scale = choose_plot_unit([series])
        points = build_runs_points(series, scale, now)
        self._show(head, [points], "run", format_axis_title(series, scale), words)

    def _over_parameter(self, run: RecordedRun, case: CasePart) -> None:
        swept = self._swept()
        if not swept:
            self.show_nothing(f"the suite sweeps no parameter of {case.name}")
            return
        parameter = self._parameter = _kept(self._parameter, swept)
        series = [
            s for s in build_parameter_series(run, case.name, self._metric, parameter) if s.points
        ]
        if not series:
            self.show_nothing(f"{_title(self._metric, case)} of {case.name} was not measured")
            return
        head = (
            f"{_title(self._metric, case)}{_which('m', self._metric, case.metrics)} of {case.name} "
            f"over {parameter}{_which('p', parameter, swept)}"
        )
        scale = choose_plot_unit(series)
        points = [build_parameter_points(one, scale) for one in series]
        words = describe_over_parameter(series, parameter)
        self._show(head, points, parameter, format_axis_title(series[0], scale), words)

    def _show(
        self, head: str, points: Sequence[PlotSeries], x: str, y: str, words: Sequence[str]
    ) -> None:
        self.query_one("#plotted", Static).update(head)
        self.chart.display = bool(points)
        self.chart.update(points, x, y)
        self.query_one("#plot-words", Static).update("\n".join(words))


def _title(metric: str, case: CasePart) -> str:
    return format_folded_name(metric, case.metrics[metric].unit)


def _kept(name: str, names: Sequence[str]) -> str:
    return name if name in names else names[0]


def _after(name: str, names: Sequence[str]) -> str:
    """Return the name after this one; after the last the first."""
    if name not in names:
        return names[0] if names else name
    return names[(names.index(name) + 1) % len(names)]


def _which(key: str, name: str, names: Iterable[str]) -> str:
    """Return `` (m: 2 of 5)``, or nothing where there is but one."""
    listed = list(names)
    return f" ({key}: {listed.index(name) + 1} of {len(listed)})" if len(listed) > 1 else ""
