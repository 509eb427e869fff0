"""The right side of the page: one of the views of what was recorded."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import ContentSwitcher

from spbench.report.comparison.model import RunComparison
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.tui.results.cases_view import CasesView
from spbench.tui.results.compare_view import CompareView
from spbench.tui.results.plot_view import PlotView
from spbench.tui.results.views import View, ViewBar
from spbench.tui.widgets.line_table import LineTable

_CONTENT = {
    View.CASES: "cases-view",
    View.COMPARE: "compare-view",
    View.RUNS: "plot-view",
    View.PARAMETER: "plot-view",
}


class ViewsPane(Vertical):
    """The views, of which one is shown."""

    DEFAULT_CSS = """
    ViewsPane { width: 1fr; height: 1fr; border-subtitle-color: $text-muted; }
    ViewsPane ContentSwitcher { height: 1fr; }
    ViewsPane ContentSwitcher > * { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__(classes="pane")

    def compose(self) -> ComposeResult:
        yield ViewBar()
        with ContentSwitcher(initial=_CONTENT[View.CASES]):
            yield CasesView()
            yield CompareView()
            yield PlotView()

    @property
    def cases(self) -> CasesView:
        """The cases of the run under the cursor."""
        return self.query_one(CasesView)

    @property
    def compare(self) -> CompareView:
        """Two runs side by side."""
        return self.query_one(CompareView)

    @property
    def plot(self) -> PlotView:
        """A metric over runs or over a parameter."""
        return self.query_one(PlotView)

    def show_view(self, view: View) -> None:
        """Show a view; the focus goes along where it was in the one before."""
        inside = self.screen.focused is not None and self in self.screen.focused.ancestors
        self.query_one(ViewBar).show(view)
        self.query_one(ContentSwitcher).current = _CONTENT[view]
        if inside:
            self.focus_view(view)

    def focus_view(self, view: View) -> None:
        """Give the focus to what a view shows."""
        widgets = {View.CASES: self.cases.table, View.COMPARE: self.compare.table}
        widgets.get(view, self.plot.chart).focus()

    def find_case(self, chosen: LineTable.RowSelected) -> CasePart | None:
        """Return the case of a row, of the run under the cursor."""
        key = chosen.key
        case_id = self.compare.rows.case_id(key) if chosen.table is self.compare.table else str(key)
        return self.cases.run.cases.get(case_id) if self.cases.run else None

    def get_shown(self, view: View) -> RecordedRun | RunComparison | None:
        """Return what a view shows: a comparison, or the run under the cursor."""
        compared = self.compare.comparison if view is View.COMPARE else None
        return compared or self.cases.run

    def show_nothing(self, why: str) -> None:
        """Say in every view why there is nothing to show."""
        self.cases.show_run(None, why)
        self.compare.show_comparison(None, why)
        self.plot.show_nothing(why)

    def show_progress(self, words: str) -> None:
        """Tell what is being read; nothing where all was read."""
        self.border_subtitle = Content(words)
