"""The times of a case's iterations in a chart, in one run or in two."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from spbench.record.runs.marks import RunMarks
from spbench.report.comparison.rows import ComparedRow
from spbench.report.distribution import TimeDistribution, make_distribution
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.series import build_run_series
from spbench.tui.results.library import IterationTimes
from spbench.tui.results.plot_series import (
    LINES_NOTE,
    build_run_plot_series,
    choose_plot_unit,
    format_axis_title,
    select_case_marks,
)
from spbench.tui.results.times_chart import TimesChart
from spbench.tui.widgets.plot import Plot

_TIME = "time_ms"
MIN_PLOTTED_RUNS = 2
"""The fewest runs that are plotted."""
_READING = "reading the times…"


@dataclass(frozen=True, slots=True)
class LoadedTimes:
    """The times of the iterations of a run.

    Attributes:
        by_case: The times of each case.
        error: The reason if they cannot be read, with the name of the run; empty if they can.
    """

    by_case: IterationTimes
    error: str = ""

    def explain_none(self, case_id: str) -> str:
        """Return why there are no times of a case."""
        return self.error or f"no times of iterations of {case_id}"


BASELINE_TIMES = LoadedTimes({}, "a baseline has no times of iterations")
"""The times of a baseline."""
TimesOfPair = tuple[LoadedTimes | None, LoadedTimes | None]
"""The times of runs a and b; None while they are read."""


def show_case_times(chart: TimesChart, case: CasePart | None, times: LoadedTimes | None) -> None:
    """Show the times of a case in one run; without them, a message.

    Args:
        chart: The chart.
        case: The case; None without a choice.
        times: The times of the run; None while they are read.
    """
    if case is None:
        chart.update((), message="no case is chosen")
        return
    if times is None:
        chart.update((), message=_READING)
        return
    metric = case.metrics.get(_TIME)
    median = metric.value if metric else None
    distribution = make_distribution("", times.by_case.get(case.id, ()), median)
    if distribution is None:
        chart.update((), message=times.explain_none(case.id))
    else:
        chart.update([distribution])


def show_case_history(
    plot: Plot, case: CasePart | None, runs: Sequence[RecordedRun], marks: RunMarks
) -> bool:
    """Plot the time of a case over runs; return whether there are several to plot.

    Args:
        plot: The plot.
        case: The case; None without a choice.
        runs: The runs, in any order.
        marks: The marks of all runs.
    """
    if case is None:
        return False
    series = build_run_series(runs, case.id, _TIME)
    if len(series.points) < MIN_PLOTTED_RUNS:
        return False
    unit = choose_plot_unit([series])
    case_marks = select_case_marks(marks, runs, case.id)
    points = build_run_plot_series(series, unit, time.time(), case_marks)
    title = format_axis_title(series, unit)
    plot.update([points], "run", title, lines_note=LINES_NOTE)
    return True


def show_compared_times(chart: TimesChart, row: ComparedRow | None, times: TimesOfPair) -> None:
    """Show the times of a case in both runs; without those of one, the reason.

    Args:
        chart: The chart.
        row: The row of the case in a comparison; None without a choice.
        times: The times of both runs.
    """
    if row is None:
        chart.update((), message="no case is chosen")
        return
    case_id = row.pair.id
    medians = (row.row.a, row.row.b) if row.row else (None, None)
    distributions: list[TimeDistribution] = []
    reasons: list[str] = []
    for name, run_times, median in zip("ab", times, medians, strict=True):
        if run_times is None:
            chart.update((), message=_READING)
            return
        distribution = make_distribution(name, run_times.by_case.get(case_id, ()), median)
        if distribution is None:
            reasons.append(f"{name}: {run_times.explain_none(case_id)}")
        else:
            distributions.append(distribution)
    text = "; ".join(reasons)
    chart.update(distributions, text or row.conclusion, message=text)
