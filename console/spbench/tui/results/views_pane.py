"""The right side of the page, which shows one of the views."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import ContentSwitcher

from spbench.record.runs.history import RunSummary
from spbench.report.comparison.model import RunComparison
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.tui.results.cases_view import CasesView
from spbench.tui.results.compare_view import CompareView
from spbench.tui.results.compared_sides import Repetition, find_needed_launches
from spbench.tui.results.plot_view import PlotView
from spbench.tui.results.times_view import TimesView
from spbench.tui.results.views import View, ViewBar
from spbench.tui.widgets.line_table import LineTable

_CONTENT = {
    View.CASES: "cases-view",
    View.COMPARE: "compare-view",
    View.TIMES: "times-view",
    View.RUNS: "plot-view",
    View.PARAMETER: "plot-view",
}


class ViewsPane(Vertical):
    """The pane of the views; one of them is shown."""

    DEFAULT_CSS = """
    ViewsPane { width: 1fr; height: 1fr; }
    ViewsPane ContentSwitcher { height: 1fr; }
    ViewsPane ContentSwitcher > * { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__(classes="pane")
        self.border_title = View.CASES.capitalize()

    def compose(self) -> ComposeResult:
        yield ViewBar()
        with ContentSwitcher(initial=_CONTENT[View.CASES]):
            yield CasesView()
            yield CompareView()
            yield TimesView()
            yield PlotView()

    @property
    def cases(self) -> CasesView:
        """The cases of the run under the cursor."""
        return self.query_one(CasesView)

    @property
    def compare(self) -> CompareView:
        """The comparison of two runs."""
        return self.query_one(CompareView)

    @property
    def times(self) -> TimesView:
        """The times of a case in one or two runs."""
        return self.query_one(TimesView)

    @property
    def plot(self) -> PlotView:
        """The plot of a metric over runs or a parameter."""
        return self.query_one(PlotView)

    def show_view(self, view: View) -> None:
        """Show a view; if the previous view had the focus, the new one gets it."""
        self.query_one(ViewBar).show(view)
        self.border_title = view.capitalize()
        self.show_content(view)

    def show_content(self, view: View) -> None:
        """Show the content of a view, which another one may have if it has none."""
        had_focus = self.screen.focused is not None and self in self.screen.focused.ancestors
        switcher = self.query_one(ContentSwitcher)
        if switcher.current != _CONTENT[view]:
            switcher.current = _CONTENT[view]
            if had_focus:
                self.focus_view(view)

    def on_compare_view_case_highlighted(self, event: CompareView.CaseHighlighted) -> None:
        """Choose the same case for the other views."""
        self.cases.table.move_to(event.case_id)

    def focus_view(self, view: View) -> None:
        """Focus the main widget of a view."""
        widgets = {
            View.CASES: self.cases.table,
            View.COMPARE: self.compare.table,
            View.TIMES: self.times.chart,
        }
        widgets.get(view, self.plot.chart).focus()

    def find_case(self, event: LineTable.RowSelected) -> CasePart | None:
        """Return the case of a selected row; None if the run does not have it."""
        key = event.key
        case_id = self.compare.rows.case_id(key) if event.table is self.compare.table else str(key)
        return self.cases.run.cases.get(case_id) if self.cases.run else None

    def get_shown(self, view: View, run: RunSummary) -> RecordedRun | RunComparison | None:
        """Return the comparison of a view, or else a run; None if it is not loaded."""
        if view is View.COMPARE and self.compare.comparison is not None:
            return self.compare.comparison
        return self._find_loaded(run)

    def _find_loaded(self, run: RunSummary) -> RecordedRun | None:
        """Return a run if it is the loaded one, which is b in some views."""
        loaded = self.cases.run
        return loaded if loaded is not None and loaded.summary.id == run.id else None

    def plan_repetitions(self, view: View, run: RunSummary) -> list[Repetition]:
        """Return the sides of the comparison, or else the run, to start again."""
        compare = self.compare
        is_compared = view is View.COMPARE and compare.comparison is not None
        planned = compare.repetitions if is_compared else []
        # The times of a run with faults are not compared, however many launches it has.
        loaded = self._find_loaded(run)
        cases = loaded.cases.values() if loaded is not None and not run.faults else ()
        return planned or [Repetition(run.folder, find_needed_launches(cases))]

    def name_repetition(self, view: View) -> str | None:
        """Return the title of the key that starts sides of a comparison; None without one."""
        sides = [repetition.side for repetition in self.compare.repetitions]
        if view is not View.COMPARE or not sides:
            return None
        return "Run both again" if len(sides) > 1 else f"Run {sides[0]} again"

    def show_nothing(self, message: str) -> None:
        """Show in every view a message on why it is empty."""
        self.cases.show_run(None, message)
        self.compare.show_comparison(None, message)
        self.times.show_nothing(message)
        self.plot.show_nothing(message)

    def show_progress(self, text: str) -> None:
        """Show the progress of loading; empty when it is finished."""
        self.border_subtitle = Content(text)
