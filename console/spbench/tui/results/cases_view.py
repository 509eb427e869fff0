"""The view of the cases of one run."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from spbench.record.efficiency import MAX_EFFICIENCY, explain_efficiency, format_efficiency
from spbench.record.number_formatting import format_duration
from spbench.record.planted_faults import FaultOutcome, format_result_count
from spbench.record.runs.marks import RunMarks
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.run_details import Fact, list_case_facts
from spbench.tui.advice import name_keys
from spbench.tui.cells import PRELIMINARY, format_value_cell, make_status_cell, make_status_span
from spbench.tui.results.case_times import LoadedTimes, show_case_history, show_case_times
from spbench.tui.results.compare_view import MIN_HEIGHT_WITH_CHART
from spbench.tui.results.fact_table import build_fact_table
from spbench.tui.results.fitted_columns import choose_columns
from spbench.tui.results.swept_columns import NONE_SWEPT, SCROLL_BAR, SweptColumns
from spbench.tui.results.times_chart import TimesChart
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.plot import Plot
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench.tui.widgets.text import fit_lines, join_fitting
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

_COLUMNS = (
    Column("status", "status", 11),
    Column("id", "case", 22, flexible=True),
    Column("np", "ranks", 5, "right", drop_priority=4),
    Column("time", "time", 8, "right"),
    Column("reference", "reference", 9, "right", drop_priority=3),
    Column("efficiency", "efficiency", 10, "right", drop_priority=1),
    Column("checks", "checks", 9, "right", drop_priority=2),
    Column("reason", "reason", 30, drop_priority=5),
)
_TIME = "time_ms"
_MIN_REASON_WIDTH = 16
"""Width from which the table has the reasons, which the remarks below it repeat in full."""
SUMMARY_SHARE = 0.3
"""Share of the lines that the summary of the run may take above a chart."""
_CUT_SUMMARY = "… (o: all)"
"""The end of a summary that is cut: the Run page has all of it."""
_CHART_HINT = "press v twice for the chart of its times"
CHART_LINES = 11
"""Lines of the chart of the times, at least."""
TEXT_LINES = 16
"""Lines of the summary, and of the facts on a case, with the blank lines around them."""
MIN_HISTORY_LINES = 10
"""Lines from which the plot over runs is shown."""
MIN_ROWS = 4
"""Rows of the table that a summary above a chart leaves at least."""
REMARK_LINES = 2
"""Lines below the table that are left for remarks on the case."""
OVERSUBSCRIBED = "~ more ranks than cores: the times are not the hardware's"


class RecordedCaseRows:
    """Rows of the cases of a run, in the order of the suite.

    Args:
        run: The run; None for no rows.
        swept: The columns of swept parameters.
    """

    def __init__(self, run: RecordedRun | None = None, swept: SweptColumns = NONE_SWEPT) -> None:
        self._cases = dict(run.cases) if run else {}
        self._slow = run.find_slow_cases() if run else frozenset()
        self._swept = swept

    def keys(self) -> Sequence[Hashable]:
        """Return the ids of the cases."""
        return list(self._cases)

    def version(self, key: Hashable) -> Hashable:
        """Return a constant, since recorded cases do not change."""
        return None

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a case."""
        case = self._get_case(key)
        is_preliminary = case.status.is_cut_short and _TIME in case.metrics
        preliminary = PRELIMINARY if is_preliminary else ""
        return (
            self._make_status_cell(case),
            *self._swept.cells(case.id),
            str(case.np),
            preliminary + format_value_cell(self.sort_value(key, "time"), "ms"),
            TableCell(format_value_cell(self.sort_value(key, "reference"), "ms"), "muted"),
            TableCell(
                format_efficiency(case.efficiency(), disturbed=case.disturbed),
                "muted" if case.disturbed or (case.efficiency() or 0.0) > MAX_EFFICIENCY else "",
            ),
            _make_checks_cell(case),
            TableCell(name_keys(case.reason or ""), "muted"),
        )

    def _make_status_cell(self, case: CasePart) -> TableCell:
        is_slow = case.id in self._slow
        is_noisy = case.noisy is not None
        return make_status_cell(case.status, case.status_text, noisy=is_noisy, slow=is_slow)

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a case."""
        case = self._get_case(key)
        if self._swept.contains(column):
            return self._swept.sort_value(case.id, column)
        time = case.metrics.get(_TIME)
        reference = case.limits.get(_TIME)
        passed, total = case.check_counts
        value_by_column = {
            "time": time.value if time else None,
            "reference": reference.value if reference else None,
            "efficiency": case.efficiency(),
            "checks": passed - total if total else None,
        }
        return value_by_column[column] if column in value_by_column else getattr(case, column)

    def search_text(self, key: Hashable) -> str:
        """Return an empty text, since these rows have no filter."""
        return ""

    def _get_case(self, key: Hashable) -> CasePart:
        return self._cases[str(key)]


def _make_checks_cell(case: CasePart) -> TableCell:
    passed, total = case.check_counts
    if not total:
        return TableCell("")
    return TableCell(f"{passed}/{total}", "passed" if passed == total else "failed")


class CasesView(Vertical):
    """The cases of a run with their times, references and checks."""

    HELP: ClassVar[str] = """\
The cases of the run under the cursor.
time: the slowest rank in each iteration, then the median over iterations.
reference: simpler operations with the same work, in the same job. efficiency: reference / time.
checks: those that passed of those made, each on each rank.
~ disturbed: ranks shared cores or other work had them (≈).
▲: a rank or link is slow, see the findings.
Enter opens all that was measured of a case. The case under the cursor is the one that the charts
and plots show."""
    DEFAULT_CSS = """
    CasesView #run-summary { height: auto; }
    CasesView #case-remarks { height: auto; max-height: 2; color: $text-muted; }
    CasesView TimesChart { display: none; height: 11; margin-top: 1; }
    CasesView.-with-chart TimesChart { display: block; }
    CasesView.-with-chart #case-remarks { max-height: 1fr; margin-top: 1; }
    CasesView #case-history { display: none; height: 1fr; max-height: 22; margin-top: 1; }
    CasesView #case-history.visible { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(id="cases-view")
        self.run: RecordedRun | None = None
        self._summary = Content("")
        self._note = ""
        self._times: LoadedTimes | None = None
        self._history: Sequence[RecordedRun] = ()
        self._marks: RunMarks = {}

    def compose(self) -> ComposeResult:
        yield Static("", id="run-summary", markup=False)
        yield LineTable(_COLUMNS, RecordedCaseRows(), id="cases", empty="no case was recorded")
        yield TimesChart(id="case-times")
        yield Plot(id="case-history")
        yield Static("", id="case-remarks", markup=False)

    @property
    def table(self) -> LineTable:
        """The table of the cases."""
        return self.query_one(LineTable)

    def selected_case(self) -> CasePart | None:
        """Return the case under the cursor; None if there is none."""
        return self.run.cases.get(str(self.table.cursor_key)) if self.run else None

    def move_case(self, rows: int) -> None:
        """Move the cursor by a number of rows; after the last row, go to the first."""
        keys = self.table.matching_keys
        if self.table.cursor_key in keys:
            self.table.move_to(keys[(keys.index(self.table.cursor_key) + rows) % len(keys)])

    def describe_position(self) -> str:
        """Return `` (case 2 of 5, n: next)`` for the cursor; empty for a single case."""
        keys = self.table.matching_keys
        if len(keys) < 2 or self.table.cursor_key not in keys:
            return ""
        return f" (case {keys.index(self.table.cursor_key) + 1} of {len(keys)}, n: next)"

    def show_run(self, run: RecordedRun | None, message: str = "") -> None:
        """Show a run, or a message on why there is none."""
        if run is None or self.run is None or run.summary.id != self.run.summary.id:
            self._times = None
        if run is None or self.run is None or run.summary.suite != self.run.summary.suite:
            self._history = ()
        self.run = run
        self._note = ""
        self._summary = _summarize(run) if run else Content(message)
        self._show_rows()

    def show_note(self, note: str) -> None:
        """Show a line above the summary, such as why there is no comparison."""
        self._note = note
        self._show_rows()

    def show_times(self, times: LoadedTimes) -> None:
        """Show the times of the iterations of the case under the cursor."""
        self._times = times
        self._show_chart()

    def show_history(self, runs: Sequence[RecordedRun], marks: RunMarks) -> None:
        """Plot the time of the case under the cursor over runs."""
        self._history = runs
        self._marks = marks
        self._show_history()

    def _show_history(self) -> None:
        plot = self.query_one(Plot)
        case = self.selected_case() if self.has_history_room else None
        plot.set_class(show_case_history(plot, case, self._history, self._marks), "visible")

    @property
    def has_history_room(self) -> bool:
        """Whether the view has enough lines for a plot over runs below the chart."""
        return self.has_chart and self._count_spare_lines() >= MIN_HISTORY_LINES

    def _count_table_lines(self) -> int:
        count = len(self.run.cases) if self.run else 0
        return max(4, min(1 + count, self.size.height // 2))

    def _count_spare_lines(self) -> int:
        """Return the lines that table, chart and texts usually leave."""
        return self.size.height - self._count_table_lines() - CHART_LINES - TEXT_LINES

    @property
    def has_chart(self) -> bool:
        """Whether the view has enough lines for the chart of a case."""
        return self.run is not None and self.size.height >= MIN_HEIGHT_WITH_CHART

    def on_resize(self, event: Resize) -> None:
        """Choose the columns that fit the new width."""
        if event.size.width:
            self._show_rows()

    def _show_rows(self) -> None:
        cases = list(self.run.cases) if self.run else []
        width = self.size.width - SCROLL_BAR
        unfitted_rows = RecordedCaseRows(self.run)
        swept, columns = choose_columns(_COLUMNS, unfitted_rows, cases, width, after="id")
        if columns[-1].key == "reason":
            width = min(_MIN_REASON_WIDTH, columns[-1].width)
            columns[-1] = replace(columns[-1], width=width, flexible=True)  # has the spare width
        self.table.set_rows(RecordedCaseRows(self.run, swept), columns)
        self.set_class(self.has_chart, "-with-chart")
        self.table.styles.height = self._count_table_lines() if self.has_chart else "1fr"
        spare_lines = max(0, self._count_spare_lines() - MIN_HISTORY_LINES)
        self.query_one(TimesChart).styles.height = CHART_LINES + min(6, spare_lines // 2)
        self._show_summary(len(cases))
        self._show_remarks()
        self._show_chart()
        self._show_history()

    def _show_summary(self, case_count: int) -> None:
        """Show the summary in the lines that the table leaves; an ellipsis marks a cut."""
        height = self.size.height
        table_lines = 1 + (min(case_count, MIN_ROWS) if self.has_chart else case_count)
        least_lines = round(SUMMARY_SHARE * height) if self.has_chart else 1
        limit = max(least_lines, height - table_lines - REMARK_LINES)
        summary = self._summary
        if self.run is not None and not self.has_chart:
            summary = Content("\n").join(summary.split("\n")[1:])  # the runs' pane has the id
        if self._note:
            summary = Content(f"{self._note}\n") + summary
        fitted = fit_lines(summary, self.size.width, limit, _CUT_SUMMARY)
        self.query_one("#run-summary", Static).update(fitted)

    def _show_chart(self) -> None:
        if self.has_chart:
            show_case_times(self.query_one(TimesChart), self.selected_case(), self._times)

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the remarks on the case, which the table may have cut."""
        self._show_remarks()
        self._show_chart()
        self._show_history()

    def _show_remarks(self) -> None:
        case = self.selected_case()
        remarks = self.query_one("#case-remarks", Static)
        if case is not None and self.has_class("-with-chart"):
            remarks.update(build_fact_table(_list_facts(case)))
        else:
            lines = list(_list_remarks(case)) if case is not None else []
            if len(lines) == 1:
                lines = [join_fitting([*lines, _CHART_HINT], self.size.width)]
            remarks.update("\n".join(lines))


def _list_facts(case: CasePart) -> Iterator[Fact]:
    """Yield id, facts and explanations of the values of a case."""
    yield Fact("case", case.id)
    yield from list_case_facts(case)
    for note in _list_notes(case):
        yield Fact("note", note)


def _list_remarks(case: CasePart) -> Iterator[str]:
    """Yield id and reason of a case, and explanations of its values."""
    yield case.id
    if case.reason:
        yield name_keys(case.reason)
    yield from _list_notes(case)


def _list_notes(case: CasePart) -> Iterator[str]:
    """Yield explanations of the values of a case."""
    if case.disturbed and not case.noisy:  # the findings of the run explain a noisy case
        yield OVERSUBSCRIBED
    explanation = explain_efficiency(case.efficiency())
    if explanation:
        yield explanation


def _summarize(run: RecordedRun) -> Content:
    """Return a summary of a run: status, duration, host, findings and errors."""
    summary = run.summary
    duration = (
        f" in {format_duration(summary.duration_s)}" if summary.duration_s is not None else ""
    )
    host = f" on {summary.host}" if summary.host else ""
    errors = [f"error: {name_keys(error)}" for error in (*run.errors, run.left_out) if error]
    findings = map(name_keys, run.findings)
    details = "\n".join((f", {format_case_counts(run)}{duration}{host}", *findings, *errors))
    return Content.assemble(
        f"{summary.id}\n", make_status_span(summary.status, summary.status_text), details
    )


def format_case_counts(run: RecordedRun) -> str:
    """Return ``4 cases, 3 passed, 1 fault found``."""
    count = len(run.cases)
    passed = sum(c.status == CaseStatus.PASSED for c in run.cases.values())
    num_found = sum(case.status_text == FaultOutcome.FOUND for case in run.cases.values())
    counts = f"{format_quantity(count, 'case')}, {passed} passed"
    faults = f", {format_result_count(num_found, FaultOutcome.FOUND)}" if num_found else ""
    return f"{counts}{faults}"
