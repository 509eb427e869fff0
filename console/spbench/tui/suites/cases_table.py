"""The table of a suite's cases, with a filter and marks of cases to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Input, Static

from spbench.engine.run_estimate import NO_ESTIMATE, CaseEstimate, RunEstimate
from spbench.tui.panes import FilterPane, make_leave_filter_binding
from spbench.tui.suites.case_rows import COLUMNS, SuiteCaseRows
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.line_table import LineTable
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.suites.case import Case

_ROWS_AROUND_CASES = 3
"""The heading of the table and the border around it."""
NO_CASES = "no cases yet: F4 adds one"
_WITH_ERRORS = "cases appear once the errors are fixed"


class CasesTable(FilterPane):
    """The cases that match the filter, and the marks."""

    HELP = """\
The cases that the suite expands to. Enter edits a case in a form, and e goes to it in the text. ✗
marks a case with errors, which the list shows instead of estimates. Enter edits it, too. / filters
them by words of their id, benchmark and parameters. Space marks a case (●), a marks all that are
shown or removes their marks. F5 and F6 run the marked cases, which keep their marks until Escape
removes them. If none is marked, F5 runs all and F6 runs the selected one. The estimate is the
duration in earlier runs, or with ~ one computed from the work for an idle machine, within a factor
of 5. It leaves out the start of the launch, which cases share: the total below the table includes
it, with its length in brackets. Unknown: the work depends on your code or on a GPU. The line below
the cases says how many launches each needs (repeat) before a comparison of two runs can find a
difference: the more cases a run has, the more launches."""
    DEFAULT_CSS = """
    CasesTable > #launches { height: auto; display: none; color: $text-muted; }
    CasesTable > #launches.shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("cases.filter", "slash", "open_filter", "Filter", "Filter the cases"),
        make_binding("cases.mark", "space", "mark", "Mark", "Mark the case to be run", show=True),
        make_binding(
            "cases.mark-all", "a", "mark_all", "Mark all", "Mark all cases shown, or none"
        ),
        make_binding(
            "cases.unmark", "escape", "unmark", "Unmark", "Remove the marks of all cases", show=True
        ),
        make_leave_filter_binding("cases", "cases"),
    ]

    def __init__(self, id: str) -> None:
        super().__init__("Cases")
        self.id = id
        self.rows = SuiteCaseRows()
        self._marked: set[str] = set()
        self._estimate = NO_ESTIMATE
        self._launches = ""

    def compose(self) -> ComposeResult:
        yield Input(placeholder="words of id or benchmark", id="case-filter", compact=True)
        yield LineTable(COLUMNS, self.rows, id="cases", empty=NO_CASES)
        yield Static("", id="launches", markup=False)

    def on_mount(self) -> None:
        """Show the title."""
        self._update_title()

    @property
    def case(self) -> Case | None:
        """The case under the cursor."""
        return self.rows.case(self.table.cursor_key)

    @property
    def estimate(self) -> CaseEstimate | None:
        """The estimated duration of the case under the cursor; None until it is known."""
        return None if self.case is None else self._estimate.cases.get(self.case.id)

    @property
    def needed_height(self) -> int:
        """The rows that show all cases: with a heading, the border, a filter and launches."""
        filter_height = 1 if self.query_one(Input).has_class("open") else 0
        width = self.content_size.width
        launches = Content(self._launches)
        launches_height = launches.get_height({}, width) if self._launches and width else 0
        return len(self.rows.keys()) + filter_height + launches_height + _ROWS_AROUND_CASES

    @property
    def marked(self) -> tuple[str, ...]:
        """The ids of the marked cases, in the order of the file."""
        return tuple(case.id for case in self.rows.cases if case.id in self._marked)

    def show(self, rows: SuiteCaseRows, estimating: bool = True) -> None:
        """Show other cases; cases with the same id keep their marks.

        Args:
            rows: The cases.
            estimating: Whether their durations are estimated, for which the text must be valid.
        """
        estimating = estimating or self.rows.estimating
        marked_rows = rows.replace_marks(self._marked)
        self.rows = marked_rows.replace_estimates(self._estimate, estimating)
        self.table.set_rows(self.rows, self.rows.columns)
        self._update_title()

    def show_launches(self, launches: str) -> None:
        """Show below the table which launches a comparison needs, if some are missing."""
        if launches != self._launches:
            self._launches = launches
            line = self.query_one("#launches", Static)
            line.update(launches)
            line.set_class(bool(launches), "shown")

    def show_estimate(self, estimate: RunEstimate) -> None:
        """Show the duration of each case, and of the marked cases or those shown."""
        self._estimate = estimate
        self.rows = self.rows.replace_estimates(estimate, estimating=False)
        self.table.set_rows(self.rows)
        self._update_title()

    def clear(self) -> None:
        """Remove all cases and marks, because another file is opened."""
        self._marked.clear()
        self._estimate = NO_ESTIMATE
        self.show_launches("")
        self.show(SuiteCaseRows())

    def show_filtered(self, text: str) -> None:
        """Show the cases that match the filter."""
        super().show_filtered(text)
        self._update_title()

    def action_open_filter(self) -> None:
        """Ask for the filter."""
        self.open_filter()

    def action_mark(self) -> None:
        """Toggle the mark of the case under the cursor, and move to the next one."""
        case = self.case
        if case is not None:
            self._marked ^= {case.id}
            self._show_marks()
            self.table.action_move(1)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to remove marks if there are any and Escape leaves no filter."""
        if action == "unmark":
            return bool(self.marked) and not super().check_action("leave_filter", ())
        return super().check_action(action, parameters)

    def action_unmark(self) -> None:
        """Remove all marks, also of cases that the filter hides."""
        self._marked.clear()
        self._show_marks()

    def action_mark_all(self) -> None:
        """Mark all shown cases, or remove their marks if all are marked."""
        shown = {str(key) for key in self.table.matching_keys if self.rows.case(key) is not None}
        self._marked = self._marked - shown if shown <= self._marked else self._marked | shown
        self._show_marks()

    def _show_marks(self) -> None:
        self.rows = self.rows.replace_marks(self._marked)
        self.table.set_rows(self.rows)
        self._update_title()
        self.refresh_bindings()  # the title of F5 has their number

    def _format_duration(self) -> str:
        """Return the duration of the marked cases, or of those shown; empty if unknown.

        Until the next estimate, that of an earlier text is used for unchanged cases.
        """
        if not self.rows.current or self.rows.rejected:
            return ""
        shown = set(self.table.matching_keys)
        names = self.marked or [case.id for case in self.rows.cases if case.id in shown]
        return self._estimate.select_cases(names).total_text

    def _update_title(self) -> None:
        count = len(self.rows.keys())
        table = self.table
        title = format_quantity(count, "case")
        if table.filter and count:
            title = f"{table.match_count:,} of {title}"
        if marked := len(self.marked):
            title += f", {marked:,} marked"
        if rejected := len(self.rows.rejected):
            title += f", {rejected:,} with errors"
        if duration := self._format_duration():
            title += f", {duration}"
        if not self.rows.current:
            title = f"{title}, as they were before the errors" if count else _WITH_ERRORS
        self.border_subtitle = Content(title)
        marks = f": {marked:,} of {count:,} marked, F5 runs these, Escape unmarks" if marked else ""
        self.border_title = Content(f"Cases{marks}")
