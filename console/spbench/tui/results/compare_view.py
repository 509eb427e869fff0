"""The view that compares two runs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.message import Message
from textual.widgets import Static

from spbench.record.number_formatting import format_factor
from spbench.report.comparison.model import HEADLINE, RunComparison
from spbench.report.comparison.notes import comparison_notes, comparison_summary
from spbench.report.comparison.rows import ComparedRow, OutcomeLabel, case_rows, metric_rows
from spbench.report.comparison.unjudged import (
    ANY_LAUNCH_ADVICE,
    case_reasons,
    find_lacking_launches,
)
from spbench.tui.advice import name_keys
from spbench.tui.cells import PRELIMINARY
from spbench.tui.results.case_times import LoadedTimes, TimesOfPair, show_compared_times
from spbench.tui.results.compared_sides import (
    Repetition,
    SideA,
    advise_repetition,
    build_heading,
    plan_repetitions,
)
from spbench.tui.results.fitted_columns import choose_columns
from spbench.tui.results.swept_columns import NONE_SWEPT, SCROLL_BAR, SweptColumns
from spbench.tui.results.times_chart import TimesChart
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.number_text import format_quantity

_OUTCOME = Column("outcome", "outcome", max(map(len, OutcomeLabel)))
_CASE = Column("case", "case", 12, flexible=True)
_RATIO = Column("ratio", "b/a", 8, "right")
_INTERVAL = Column("interval", "95 % interval", 14, drop_priority=2)
_CASE_COLUMNS = (
    *(_OUTCOME, _CASE, Column("a", "a", 8, "right"), Column("b", "b", 8, "right")),
    *(_RATIO, _INTERVAL),
)
_METRIC_COLUMNS = (
    *(_OUTCOME, _CASE, Column("metric", "metric", 14)),
    *(Column("a", "a", 9, "right"), Column("b", "b", 9, "right")),
    *(_RATIO, _INTERVAL),
)
_STYLES = {
    OutcomeLabel.WORSE: "failed",
    OutcomeLabel.BROKEN: "failed",
    OutcomeLabel.BETTER: "passed",
    OutcomeLabel.SAME: "muted",
    OutcomeLabel.CANCELLED: "muted",
    OutcomeLabel.NOT_JUDGED: "accent",
    OutcomeLabel.NOT_SLOWER: "muted",
}
_LABELS = list(OutcomeLabel)
_LARGE_FACTOR = 2
"""The ratio from which the reason why a case is not judged names it."""
MIN_HEIGHT_WITH_CHART = 26
"""Lines of the view from which the chart is below the table."""
NO_COMPARISON = "Nothing to compare with: mark two runs with space."


class CompareRows:
    """A row for each case that both runs have, or for each metric of each case.

    Args:
        comparison: The comparison; None for no rows.
        swept: The columns of swept parameters.
        all_metrics: Whether there is a row for each metric.
    """

    def __init__(
        self,
        comparison: RunComparison | None = None,
        swept: SweptColumns = NONE_SWEPT,
        *,
        all_metrics: bool = False,
    ) -> None:
        self._swept = swept
        self._all_metrics = all_metrics
        rows: Sequence[ComparedRow] = ()
        if comparison:
            rows = metric_rows(comparison) if all_metrics else case_rows(comparison)
        self._reasons = case_reasons(comparison) if comparison else {}
        self._rows: dict[Hashable, ComparedRow] = {
            (row.pair.id, row.row.metric if row.row else HEADLINE): row for row in rows
        }

    def keys(self) -> Sequence[Hashable]:
        """Return the pairs of case and metric."""
        return list(self._rows)

    def version(self, key: Hashable) -> Hashable:
        """Return a constant, since a comparison does not change."""
        return None

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a row."""
        row = self._rows[key]
        outcome = TableCell(row.label, _STYLES[row.label]) if row.label else ""
        metric = (row.metric,) if self._all_metrics else ()
        values = (
            _make_value_cell(text, is_preliminary=is_cut_short)
            for text, is_cut_short in zip((row.a, row.b), row.cut_short, strict=True)
        )
        return (
            outcome,
            *self._swept.cells(row.pair.id),
            *metric,
            *(*values, row.ratio, row.interval),
        )

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a row."""
        if self._swept.contains(column):
            return self._swept.sort_value(self.case_id(key), column)
        row = self._rows[key]
        if column == "outcome":
            return _LABELS.index(row.label) if row.label else None
        if column == "case":
            return row.pair.id
        if column in ("ratio", "interval") and not row.ratio:
            return None
        return getattr(row.row, column) if row.row else None

    def search_text(self, key: Hashable) -> str:
        """Return an empty text, since these rows have no filter."""
        return ""

    def describe(self, key: Hashable) -> str:
        """Return the full text of a row, which the table may have cut."""
        row = self._rows.get(key)
        if row is None:
            return ""
        if row.row is None:
            return row.pair.id
        title = f"{row.metric} of {row.pair.id}"
        if row.row.metric == HEADLINE and row.pair.id in self._reasons:
            factor = _describe_factor(row)
            if len(set(self._reasons.values())) == 1:
                word = OutcomeLabel.NOT_JUDGED.word if row.label is None else row.label.word
                return f"{title}: {factor or word}"  # the note below has the reason
            return f"{title}: {factor and f'{factor}: '}{self._reasons[row.pair.id]}"
        parts = [title]
        if row.interval:
            parts.append(f"95 % interval of b/a {row.interval}")
        if all(row.row.launches):
            launches = [format_quantity(count, "launch", "launches") for count in row.row.launches]
            parts.append(f"{launches[0]} in a, {launches[1]} in b")
        return ", ".join(parts)

    def case_id(self, key: Hashable) -> str:
        """Return the id of the case of a row."""
        return self._rows[key].pair.id

    def metric(self, key: Hashable) -> str:
        """Return the metric of a row."""
        row = self._rows[key].row
        return row.metric if row else HEADLINE

    def find_time(self, key: Hashable) -> ComparedRow | None:
        """Return the row of the time of a row's case; None without a time."""
        row = self._rows.get(key)
        return None if row is None else self._rows.get((row.pair.id, HEADLINE))


class CompareView(Vertical):
    """The ratio of the times of each case, and which run is better."""

    HELP: ClassVar[str] = """\
Two runs side by side: a is the older one, b the newer one. They are the two marked runs (space), or
the marked run and the one under the cursor. Without a mark, a is the earlier run of the same suite
that shares the most cases, without planted faults if possible. A run that R starts is b.
There is one row for each case: its time (slowest rank, median over iterations), the ratio b/a, and
the 95 % interval of the ratio. A shows all metrics.
The launches that each side needs grow with the number of compared cases, as all are judged
together; a launch is one repeat of a case. Same means that a difference of more than 10 % is
excluded, and not slower that a slowdown of more than 10 % is. On a large screen, the chart has the
times of both runs of the case under the cursor; elsewhere v shows them. The notes give the reason
why a case is not judged, and a remedy. Tab goes to the notes, which then have more lines; up and
down scroll them."""
    DEFAULT_CSS = """
    CompareView #compared-runs { height: auto; max-height: 4; }
    CompareView TimesChart { display: none; height: 1fr; max-height: 32; margin-top: 1; }
    CompareView.-with-chart TimesChart { display: block; }
    CompareView LineTable { min-height: 4; }
    CompareView #notes { height: auto; max-height: 3; }
    CompareView.-few-rows #notes { max-height: 50%; }
    CompareView.-with-chart #notes { max-height: 30%; }
    CompareView #notes:focus { max-height: 60%; }
    CompareView #remarks { height: auto; color: $text-muted; }
    """

    class CaseHighlighted(Message):
        """The cursor is on the row of another case."""

        def __init__(self, case_id: str) -> None:
            super().__init__()
            self.case_id = case_id

    def __init__(self) -> None:
        super().__init__(id="compare-view")
        self.comparison: RunComparison | None = None
        self.rows = CompareRows()
        self.all_metrics = False
        self.repetitions: list[Repetition] = []
        self._metric = HEADLINE  # under the cursor when all metrics were last shown
        self._notes: list[str] = []
        self._times: TimesOfPair = (None, None)

    def compose(self) -> ComposeResult:
        yield Static(NO_COMPARISON, id="compared-runs", markup=False)
        yield LineTable(_CASE_COLUMNS, self.rows, id="compared", empty="no case is in both runs")
        yield TimesChart(id="compared-times")
        with VerticalScroll(id="notes"):
            yield Static("", id="remarks", markup=False)

    @property
    def table(self) -> LineTable:
        """The table of the cases or metrics."""
        return self.query_one(LineTable)

    def show_comparison(
        self,
        comparison: RunComparison | None,
        message: str = NO_COMPARISON,
        case_id: str | None = None,
        side: SideA | None = None,
    ) -> None:
        """Show a comparison with a side, with the cursor on a case, or else a message."""
        if _get_run_ids(comparison) != _get_run_ids(self.comparison):
            self._times = (None, None)
        self.comparison = comparison
        self.repetitions = []
        heading = Content(message)
        if comparison is not None:
            side = side or SideA()
            heading = Content("\n").join(build_heading(comparison, side.remark, side.origin))
        self.query_one("#compared-runs", Static).update(heading)
        # Once, since the cursor moves often and a comparison may have thousands of cases.
        self._notes = self._list_notes(comparison) if comparison else []
        self.table.display = comparison is not None
        self._show_rows()
        if case_id is not None and self._get_cursor_case() != case_id:
            self.table.move_to((case_id, HEADLINE))

    def _list_notes(self, comparison: RunComparison) -> list[str]:
        """Return the notes with keys instead of options, and plan the runs that R starts."""
        notes = comparison_notes(comparison)
        lacking = find_lacking_launches(comparison)
        self.repetitions = plan_repetitions(comparison, lacking)
        if lacking is not None and self.screen.check_action("repeat", ()):  # not if readonly
            advice = advise_repetition(comparison, lacking)
            notes = [ANY_LAUNCH_ADVICE.sub(advice, note) for note in notes]
        return [name_keys(note).replace("`", "") for note in notes]

    def show_times(self, a: LoadedTimes, b: LoadedTimes) -> None:
        """Show the times of the iterations of both runs in the chart."""
        self._times = (a, b)
        self._show_chart()

    def on_resize(self, event: Resize) -> None:
        """Choose the columns that fit the new width."""
        if event.size.width:
            self._show_rows()

    def toggle_metrics(self) -> None:
        """Show a row for each metric, or again one for each case."""
        case_id = self._get_cursor_case()
        if self.all_metrics and case_id is not None:
            self._metric = self.rows.metric(self.table.cursor_key)
        self.all_metrics = not self.all_metrics
        self._show_rows()
        metric = self._metric if self.all_metrics else HEADLINE
        self.table.move_to((case_id, metric))

    def _get_cursor_case(self) -> str | None:
        """Return the id of the case under the cursor; None if there is none."""
        key = self.table.cursor_key
        return None if key is None else self.rows.case_id(key)

    def _show_rows(self) -> None:
        cases = [pair.id for pair in self.comparison.cases] if self.comparison else []
        columns = _METRIC_COLUMNS if self.all_metrics else _CASE_COLUMNS
        width = self.size.width - SCROLL_BAR
        unfitted_rows = CompareRows(self.comparison, all_metrics=self.all_metrics)
        swept, fitted = choose_columns(columns, unfitted_rows, cases, width)
        self.rows = CompareRows(self.comparison, swept, all_metrics=self.all_metrics)
        self.table.set_rows(self.rows, fitted)
        self._arrange()
        self._show_remarks()

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the full text of the row, which the table may have cut."""
        event.stop()
        self._show_remarks()
        self._show_chart()
        case_id = self._get_cursor_case()
        if case_id is not None:
            self.post_message(self.CaseHighlighted(case_id))

    def _arrange(self) -> None:
        """Show the chart below the table if both have enough lines."""
        has_rows = self.comparison is not None and bool(self.rows.keys())
        has_chart = has_rows and self.size.height >= MIN_HEIGHT_WITH_CHART
        self.set_class(has_chart, "-with-chart")
        is_small = 1 + len(self.rows.keys()) <= self.size.height // 3
        self.set_class(has_rows and is_small and not has_chart, "-few-rows")
        table_lines = min(1 + len(self.rows.keys()), self.size.height // 3)
        self.table.styles.height = max(4, table_lines) if has_chart else "1fr"
        self._show_chart()

    def _show_chart(self) -> None:
        if not self.has_class("-with-chart"):
            return
        row = self.rows.find_time(self.table.cursor_key)
        show_compared_times(self.query_one(TimesChart), row, self._times)

    def _show_remarks(self) -> None:
        lines: list[str] = []
        if self.comparison:
            hint = " Tab goes to all notes." if self._notes else ""
            lines = [f"{comparison_summary(self.comparison)}.{hint}"]
            lines += [self.rows.describe(self.table.cursor_key)]
            lines += self._notes
        self.query_one("#remarks", Static).update("\n".join(filter(None, lines)))


def _describe_factor(row: ComparedRow) -> str:
    """Return ``about 180x slower, not judged`` for a large ratio, or nothing."""
    ratio = row.row.ratio if row.row and row.ratio else None
    if row.label is not OutcomeLabel.NOT_JUDGED or not ratio:
        return ""
    factor = max(ratio, 1 / ratio)
    if factor < _LARGE_FACTOR:
        return ""
    word = "slower" if ratio > 1 else "faster"
    return f"about {format_factor(factor)} {word}, not judged"


def _make_value_cell(text: str, *, is_preliminary: bool) -> TableCell:
    """Return the cell of a value; grey if it is preliminary or disturbed."""
    if is_preliminary and text:
        return TableCell(PRELIMINARY + text, "muted")
    return TableCell(text, "muted" if text.startswith("~") else "")


def _get_run_ids(comparison: RunComparison | None) -> tuple[str, str] | None:
    return None if comparison is None else (comparison.a.id, comparison.b.id)
