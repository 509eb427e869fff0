"""The view that plots a metric over runs or over a swept parameter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from spbench.record.metric_names import format_folded_name
from spbench.record.runs.marks import RunMarks
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.series import build_run_series, find_swept_parameters
from spbench.tui.results.plot_series import (
    LINES_NOTE,
    arrange_run_values,
    build_compared_series,
    build_parameter_plot_series,
    build_run_plot_series,
    choose_plot_unit,
    describe_only_run,
    describe_over_parameter,
    describe_over_runs,
    describe_runs_without,
    explain_no_sweep,
    format_axis_title,
    list_metric_units,
    select_case_marks,
)
from spbench.tui.results.swept_columns import SCROLL_BAR
from spbench.tui.widgets.plot import Plot, PlotSeries


class PlotView(Vertical):
    """A plot of a metric of a case, with a title and the same values as text."""

    HELP: ClassVar[str] = """\
A metric of the case under the cursor of the cases: over the runs that the filter shows, or, within
the run under the cursor, over a parameter that the suite sweeps, with a series for each
combination of the others. With two runs, one of them marked (space), the older one is a. Each point
is a median; its line goes from the least to the p95. The axis fits the medians, and a line that
goes beyond it has an arrow. Runs that did not measure the metric are named below the title. Below
the plot over runs are their values, row by row from the newest on.
! and ≠ after a run mean a fault planted in the case, or other machines or versions than the newest
run has.
m shows the next metric, X the next parameter, n and N the next case and the one before."""
    DEFAULT_CSS = """
    PlotView #plot-title { height: auto; max-height: 3; }
    PlotView Plot { height: 1fr; min-height: 6; max-height: 40; }
    PlotView VerticalScroll { height: auto; max-height: 30%; scrollbar-size-vertical: 1; }
    PlotView #plot-summary { height: auto; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__(id="plot-view")
        self._runs: Sequence[RecordedRun] = ()
        self._marks: RunMarks = {}
        self._run: RecordedRun | None = None
        self._other: RecordedRun | None = None
        self._case: CasePart | None = None
        self._units: dict[str, str] = {}  # by the metrics that the shown runs have
        self._position = ""
        self._metric = ""
        self._parameter = ""
        self._lines: Sequence[str] = ()
        self._arrange_values: Callable[[int], list[str]] = lambda width: []

    def compose(self) -> ComposeResult:
        yield Static("", id="plot-title", markup=False)
        yield Plot(id="plot")
        with VerticalScroll(can_focus=False):
            yield Static("", id="plot-summary", markup=False)

    @property
    def chart(self) -> Plot:
        """The plot."""
        return self.query_one(Plot)

    def show_runs(
        self,
        runs: Sequence[RecordedRun],
        case: CasePart | None,
        marks: RunMarks,
        position: str = "",
    ) -> None:
        """Plot the metric of a case over runs.

        Args:
            runs: The runs.
            case: The case; None without one.
            marks: The marks of all runs of the home.
            position: The position of the case in its run as text, after its name in the heading.
        """
        self._position = position
        self._runs = runs
        self._marks = marks if case is None else select_case_marks(marks, runs, case.id)
        self._run = None
        self._case = case
        self._units = list_metric_units(runs, case)
        self._draw()

    def show_parameter(
        self, run: RecordedRun, case: CasePart | None, marked: RecordedRun | None = None
    ) -> None:
        """Plot the metric of the cases with the same name over a swept parameter.

        Args:
            run: The run under the cursor, b in the legend.
            case: The case; None without one.
            marked: The marked run, a in the legend; None plots only one run.
        """
        self._run = run
        self._other = marked
        self._case = case
        self._units = list_metric_units((run,), case)
        self._draw()

    def next_metric(self) -> None:
        """Show the next metric of the case."""
        self._metric = _next_name(self._metric, list(self._units))
        self._draw()

    def next_parameter(self) -> None:
        """Show the metric over the next swept parameter."""
        self._parameter = _next_name(self._parameter, self._list_swept())
        self._draw()

    def show_nothing(self, message: str) -> None:
        """Show a message on why there is no plot."""
        self._show(message, [], "", "", [])

    def _list_swept(self) -> list[str]:
        return find_swept_parameters(self._run, self._case.name) if self._run and self._case else []

    def _draw(self) -> None:
        if self._case is None:
            self.show_nothing("no case")
            return
        if not self._units:
            self.show_nothing(f"{self._case.id} measured nothing")
            return
        self._metric = _keep_or_first(self._metric, list(self._units))
        if self._run is None:
            self._plot_over_runs(self._case)
        else:
            self._plot_over_parameter(self._run, self._case)

    def _plot_over_runs(self, case: CasePart) -> None:
        now = time.time()
        series = build_run_series(self._runs, case.id, self._metric)
        missing = describe_runs_without(self._runs, case.id, self._metric, now)
        title = f"{self._format_metric()} of {case.id}{self._position}"
        head = "\n".join(filter(None, (title, missing)))
        if len(series.points) == 1:
            self._show(head, [], "", "", [describe_only_run(series, now, self._marks)])
            return
        values = partial(arrange_run_values, series, now, self._marks)
        summary = describe_over_runs(series, now, self._marks)
        unit = choose_plot_unit([series])
        points = build_run_plot_series(series, unit, now, self._marks)
        self._show(head, [points], "run", format_axis_title(series, unit), [summary], values)

    def _plot_over_parameter(self, run: RecordedRun, case: CasePart) -> None:
        swept = self._list_swept()
        if not swept:
            self.show_nothing(explain_no_sweep(run, case.name))
            return
        parameter = self._parameter = _keep_or_first(self._parameter, swept)
        all_series = build_compared_series(run, self._other, case.name, self._metric, parameter)
        if not all_series:
            self.show_nothing(f"{self._format_title()} of {case.name} was not measured")
            return
        head = (
            f"{self._format_metric()} of {case.name} "
            f"over {parameter}{_format_position('X', parameter, swept)}"
        )
        unit = choose_plot_unit(all_series)
        points = [build_parameter_plot_series(series, unit) for series in all_series]
        lines = describe_over_parameter(all_series, parameter)
        title = format_axis_title(all_series[0], unit)
        self._show(head, points, parameter, title, lines)

    def _format_title(self) -> str:
        return format_folded_name(self._metric, self._units[self._metric])

    def _format_metric(self) -> str:
        """Return the title of the metric, with its position among those of the case."""
        return f"{self._format_title()}{_format_position('m', self._metric, self._units)}"

    def _show(
        self,
        head: str,
        points: Sequence[PlotSeries],
        x: str,
        y: str,
        lines: Sequence[str],
        arrange_values: Callable[[int], list[str]] = lambda width: [],
    ) -> None:
        self.query_one("#plot-title", Static).update(head)
        self.chart.display = bool(points)
        self.chart.update(points, x, y, lines_note=LINES_NOTE)
        self._lines = lines
        self._arrange_values = arrange_values
        self._show_summary()

    def _show_summary(self) -> None:
        lines = [*self._lines, *self._arrange_values(self.size.width - SCROLL_BAR)]
        self.query_one("#plot-summary", Static).update("\n".join(lines))

    def on_resize(self) -> None:
        """Arrange the values of the runs in the new width."""
        self._show_summary()


def _keep_or_first(name: str, names: Sequence[str]) -> str:
    return name if name in names else names[0]


def _next_name(name: str, names: Sequence[str]) -> str:
    """Return the next name, after the last one the first."""
    if name not in names:
        return names[0] if names else name
    return names[(names.index(name) + 1) % len(names)]


def _format_position(key: str, name: str, names: Iterable[str]) -> str:
    """Return `` (m: 2 of 5)``; empty for a single name."""
    listed = list(names)
    return f" ({key}: {listed.index(name) + 1} of {len(listed)})" if len(listed) > 1 else ""
