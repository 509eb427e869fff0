"""The view of the times of a case's iterations, in one run or in two."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from spbench.report.comparison.model import RunComparison
from spbench.report.comparison.rows import case_rows
from spbench.report.model import CasePart
from spbench.tui.results.case_times import LoadedTimes, show_case_times, show_compared_times
from spbench.tui.results.compared_sides import build_heading
from spbench.tui.results.times_chart import TimesChart


class TimesView(Vertical):
    """A chart of the times of one case in both compared runs.

    Attributes:
        position: The position of the case in its run as text, after its name in the heading.
    """

    HELP: ClassVar[str] = """\
The times of the iterations of the case under the cursor of the cases, of the slowest rank each, in
the compared runs a and b on one axis. If there is no run to compare with, or it lacks the case, the
chart has one run. n and N show the next case and the one before."""
    DEFAULT_CSS = """
    TimesView #times-heading { height: auto; max-height: 6; }
    TimesView TimesChart { height: 1fr; max-height: 34; }
    """

    def __init__(self) -> None:
        super().__init__(id="times-view")
        self.position = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="times-heading", markup=False)
        yield TimesChart(id="times-chart")

    @property
    def chart(self) -> TimesChart:
        """The chart."""
        return self.query_one(TimesChart)

    def show_nothing(self, message: str) -> None:
        """Show a message on why there are no times."""
        self._show_heading(Content(message))
        self.chart.update(())

    def show_pair(
        self,
        comparison: RunComparison,
        case: CasePart,
        times: tuple[LoadedTimes, LoadedTimes],
        remark: str = "",
    ) -> None:
        """Show a case in both runs; with only one of them if a lacks the case.

        The remark is the reason for this run a.
        """
        row = next((row for row in case_rows(comparison) if row.pair.id == case.id), None)
        if row is None:
            self.show_run(case, times[1])
            return
        title = Content(f"{case.id}{self.position}")
        self._show_heading(Content("\n").join([*build_heading(comparison, remark), title]))
        show_compared_times(self.chart, row, times)

    def show_run(self, case: CasePart, times: LoadedTimes, remark: str = "") -> None:
        """Show a case of one run, with a remark on why there is no other run."""
        title = f"{case.id}{self.position}"
        self._show_heading(Content("\n".join(filter(None, (remark, title)))))
        show_case_times(self.chart, case, times)

    def _show_heading(self, heading: Content) -> None:
        self.query_one("#times-heading", Static).update(heading)
