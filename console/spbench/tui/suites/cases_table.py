"""The table of a suite's cases: a filter, and marks of those that are run."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Input

from spbench.engine.estimate import NO_ESTIMATE, RunEstimate
from spbench.suites.case import Case
from spbench.tui.panes import FilterPane, leave_filter_key
from spbench.tui.suites.case_rows import COLUMNS, SuiteCaseRows
from spbench.tui.widgets.keys import key
from spbench.tui.widgets.line_table import LineTable
from spbench_core.quantities import format_quantity


class CasesTable(FilterPane):
    """The cases, those that fit a filter, and which of them are marked."""

    HELP = """\
The cases that the suite expands to. / filters them by words of their id and benchmark; space marks
one (●), a marks all that are shown, or none again. F5 runs the marked ones, without marks all."""
    BINDINGS: ClassVar[list[BindingType]] = [
        key("cases.filter", "slash", "open_filter", "Filter", "Filter the cases"),
        key("cases.mark", "space", "mark", "Mark", "Mark the case to be run"),
        key("cases.mark-all", "a", "mark_all", "Mark all", "Mark all cases shown, or none"),
        leave_filter_key("cases", "cases"),
    ]

    def __init__(self, id: str) -> None:
        super().__init__("Cases")
        self.id = id
        self.rows = SuiteCaseRows()
        self._marked: set[str] = set()
        self._estimate = NO_ESTIMATE

    def compose(self) -> ComposeResult:
        yield Input(placeholder="words of id or benchmark", id="case-filter", compact=True)
        yield LineTable(COLUMNS, self.rows, id="cases", empty="no cases yet")

    def on_mount(self) -> None:
        """Say what stands here."""
        self._entitle()

    @property
    def case(self) -> Case | None:
        """The case under the cursor."""
        return self.rows.case(self.table.cursor_key)

    @property
    def marked(self) -> tuple[str, ...]:
        """The ids of the marked cases, in the order of the file."""
        return tuple(case.id for case in self.rows.cases if case.id in self._marked)

    def show(self, rows: SuiteCaseRows) -> None:
        """Show other cases; those that are still there keep their marks."""
        self.rows = rows.with_marks(self._marked)
        self.table.set_rows(self.rows)
        self._entitle()

    def show_estimate(self, estimate: RunEstimate) -> None:
        """Show how long the cases take, or those that are marked."""
        self._estimate = estimate
        self._entitle()

    def clear(self) -> None:
        """Show no cases, and forget the marks: another file was opened."""
        self._marked.clear()
        self._estimate = NO_ESTIMATE
        self.show(SuiteCaseRows())

    def show_filtered(self, text: str) -> None:
        """Show the cases that fit the filter."""
        super().show_filtered(text)
        self._entitle()

    def action_open_filter(self) -> None:
        """Ask for words."""
        self.open_filter()

    def action_mark(self) -> None:
        """Mark the case under the cursor, or take its mark away, and go on to the next."""
        case = self.case
        if case is not None:
            self._marked ^= {case.id}
            self._marks_changed()
            self.table.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all cases that are shown; where all of them are, take their marks away."""
        shown = set(map(str, self.table.keys_shown))
        self._marked = self._marked - shown if shown <= self._marked else self._marked | shown
        self._marks_changed()

    def _marks_changed(self) -> None:
        self.rows = self.rows.with_marks(self._marked)
        self.table.set_rows(self.rows)
        self._entitle()

    def _duration(self) -> str:
        """Return the duration of the marked cases, or of all, in a few words; nothing if unknown.

        An estimate of an earlier text counts for the cases that are still the same until the next
        one is there.
        """
        if not self.rows.current:
            return ""
        names = self.marked or [case.id for case in self.rows.cases]
        return self._estimate.restricted_to(names).short_text

    def _entitle(self) -> None:
        cases = self.rows.cases
        table = self.table
        title = format_quantity(len(cases), "case") if cases else "Cases"
        if table.filter and cases:
            title = f"{table.shown:,} of {title}"
        if marked := len(self.marked):
            title += f", {marked:,} marked"
        if duration := self._duration():
            title += f", {duration}"
        if not self.rows.current:
            title += ", as they were before the errors" if cases else ", once the errors are fixed"
        self.border_title = Content(title)
