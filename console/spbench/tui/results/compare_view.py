"""Two runs side by side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from spbench.record.number_formatting import number
from spbench.record.runs.history import RunSummary
from spbench.report.run_comparison import CasePair, MetricRow, RunComparison
from spbench.report.tables import comparison_remarks, interval, notes
from spbench.tui.results.cells import figure, outcome_cell, status_span
from spbench.tui.results.swept_columns import NONE_SWEPT, SCROLL_BAR, SweptColumns, swept_columns
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell

_COLUMNS = (
    Column("case", "case", 14, flexible=True),
    Column("metric", "metric", 19),
    Column("a", "a", 8, "right"),
    Column("b", "b", 8, "right"),
    Column("unit", "unit", 6, rank=2),
    Column("ratio", "b/a", 7, "right"),
    Column("interval", "95 %", 12, rank=2),
    Column("outcome", "b is", 20),
    Column("note", "note", 28, rank=1),
)
MARK_ONE = (
    "Nothing to compare with: mark one run with space, it is a; the run under the cursor is b."
)


class CompareRows:
    """One row a metric of the cases that both runs have.

    Args:
        comparison: The two runs; None: no rows.
        swept: The columns of what is swept.
    """

    def __init__(
        self, comparison: RunComparison | None = None, swept: SweptColumns = NONE_SWEPT
    ) -> None:
        self._swept = swept
        pairs = comparison.cases if comparison else ()
        self._rows: dict[Hashable, tuple[CasePair, MetricRow]] = {
            (pair.id, row.metric): (pair, row) for pair in pairs for row in pair.rows
        }

    def keys(self) -> Sequence[Hashable]:
        """Return pairs of case and metric."""
        return list(self._rows)

    def version(self, key: Hashable) -> Hashable:
        """Return nothing: a comparison stays."""
        return None

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the row's cells."""
        _, row = self._rows[key]
        return (
            *self._swept.cells(row.case),
            row.metric,
            figure(row.a),
            figure(row.b),
            "" if row.unit == "1" else row.unit,
            "" if row.ratio is None else f"{number(row.ratio)}x",
            interval(row),
            outcome_cell(row.outcome),
            TableCell(self.note(key), "muted"),
        )

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return what the row is sorted by."""
        if self._swept.has(column):
            return self._swept.sort_value(self.case_of(key), column)
        return self.note(key) or None if column == "note" else getattr(self._rows[key][1], column)

    def text(self, key: Hashable) -> str:
        """Return nothing: these rows have no filter."""
        return ""

    def note(self, key: Hashable) -> str:
        """Return what a reader of the row must know beside its numbers."""
        return "; ".join(notes(*self._rows[key]))

    def told(self, key: Hashable) -> list[str]:
        """Return the row's case and metric in full, and its note."""
        if key not in self._rows:
            return []
        _, row = self._rows[key]
        note = self.note(key)
        return [f"{row.metric} of {row.case}" + (f": {note}" if note else "")]

    def case_of(self, key: Hashable) -> str:
        """Return the id of the row's case."""
        return self._rows[key][1].case


class CompareView(Vertical):
    """The ratio of the medians of each metric, and which run is better."""

    HELP: ClassVar[str] = """\
Two runs side by side: a was marked with space (else it is the run before of the same suite), b is
the one under the cursor. b/a is the typical ratio of a launch of b to one of a, with its interval
of 95 %. The same is what differs by less than 10 % for sure; where there are too few launches for a
verdict, the note says how many would tell. A case is judged if its time is better, worse or the
same. Lower or higher is better as the metric has it."""
    DEFAULT_CSS = """
    CompareView #both { height: auto; max-height: 4; }
    CompareView #remarks { height: auto; max-height: 6; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__(id="compare-view")
        self.comparison: RunComparison | None = None
        self.rows = CompareRows()

    def compose(self) -> ComposeResult:
        yield Static(MARK_ONE, id="both", markup=False)
        yield LineTable(_COLUMNS, self.rows, id="compared", empty="no case is in both runs")
        yield Static("", id="remarks", markup=False)

    @property
    def table(self) -> LineTable:
        """The table of the metrics."""
        return self.query_one(LineTable)

    def show_comparison(self, comparison: RunComparison | None, words: str = MARK_ONE) -> None:
        """Show a comparison, or say in words why there is none."""
        self.comparison = comparison
        told = Content(words)
        if comparison:
            told = Content("\n").join((_line("a", comparison.a), _line("b", comparison.b)))
        self.query_one("#both", Static).update(told)
        self.table.display = comparison is not None
        self._show_rows()

    def on_resize(self, event: Resize) -> None:
        """Write ids as there is room for them."""
        if event.size.width:
            self._show_rows()

    def _show_rows(self) -> None:
        cases = [pair.id for pair in self.comparison.cases] if self.comparison else []
        swept = swept_columns(cases, _COLUMNS, self.size.width - SCROLL_BAR)
        self.rows = CompareRows(self.comparison, swept)
        self.table.set_rows(self.rows, swept.columns(_COLUMNS))
        self._show_remarks()

    def on_line_table_highlighted(self, event: LineTable.Highlighted) -> None:
        """Tell the row's note in full, which the table may have no room for."""
        event.stop()
        self._show_remarks()

    def _show_remarks(self) -> None:
        told = self.rows.told(self.table.cursor_key)
        remarks = comparison_remarks(self.comparison, brief=True) if self.comparison else []
        self.query_one("#remarks", Static).update("\n".join([*remarks, *told]))


def _line(name: str, run: RunSummary) -> Content:
    where = f" on {run.host}" if run.host else ""
    return Content.assemble(f"{name}  {run.id}  ", status_span(run.verdict), where)
