"""The cases of a suite, and the command of the selected case."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer

from spbench.tui.suites.case_facts import CaseFacts, read_case_facts
from spbench.tui.suites.case_rows import EXCESS_SIGN, EntryPosition, SuiteCaseRows
from spbench.tui.suites.cases_table import CasesTable
from spbench.tui.suites.parsed_suite import (
    ParsedSuite,
    describe_launches,
    estimate_parsed,
    find_command,
)
from spbench.tui.suites.rejected_entry import RejectedEntry
from spbench.tui.widgets.glyphs import PROBLEM_SIGN
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.text import TextBlock

if TYPE_CHECKING:
    from spbench.engine.commands import JobCommand
    from spbench.engine.run_estimate import CaseEstimate
    from spbench.suites.case import Case

COMMAND_DELAY = 0.1
"""Time from the selection of a case to the computation of its command, in seconds."""
_MIN_FITTED_HEIGHT = 16
"""Height of the pane from which table and command both have enough rows."""
_MAX_TABLE_SHARE = 0.6
"""Share of the pane up to which the table leaves lines for the command; see its CSS."""
_MIN_SPLIT_WIDTH = 100
_MIN_SPLIT_HEIGHT = 30
"""Size of the terminal from which text, table and command have enough rows at once."""
_FOLDED_HEIGHT = 3
"""Lines of the command below many focused cases in a small terminal; see its CSS."""
_MIN_FACTS_HEIGHT = 12
"""Height of the pane of the command from which the facts about the case come first."""
NO_CASE = "Select a case to see its launch command."
EMPTY_SUITE = "The command of a case appears here."
_FITS_FORM = "F3 edits the case in a form, e goes to it in the text."
_TEXT_ONLY = "e goes to the case in the text: the form can edit it once it has no such error."
_WITH_ERRORS = "The command of a case appears once the errors are fixed."


class CommandPane(VerticalScroll):
    """The command of the selected case; y on the page copies its launch line.

    Attributes:
        command_line: The launch line with its environment; empty without one.
        reason: Why there is no launch line.
    """

    HELP: ClassVar[str] = """\
The selected case: the estimate of its duration, its ranks and all its parameters. Parameters that
the suite sets are bold. Below them is the exact launch line of the job with the case, on
the selected hosts, then the command that runs only this case, without spbench, and the environment
of both. Last are its metrics, checks and expectations, and the faults that can be planted. A low
pane begins with the launch line. y copies the launch line with its environment.
"""
    DEFAULT_CSS = "CommandPane { scrollbar-size: 0 1; }"

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.command_line = ""
        self.reason = NO_CASE
        self._parts = [Text(NO_CASE)]
        self._warning = Content("")
        self._is_short = True
        self.border_title = "Command"

    def compose(self) -> ComposeResult:
        yield TextBlock(NO_CASE, markup=False)

    def copy_line(self) -> bool:
        """Copy the launch line to the clipboard; return whether there is one."""
        if self.command_line:
            self.app.copy_to_clipboard(self.command_line)
            self.app.notify("launch line copied", timeout=3)
        return bool(self.command_line)

    def show(
        self,
        command: JobCommand | str,
        case_id: str = "",
        warning: str = "",
        facts: CaseFacts | None = None,
    ) -> None:
        """Show the command of a case or why it has none, with a warning and facts."""
        if isinstance(command, str):
            self.command_line = ""
            self.reason = command
            self.border_title = "Command"
            text = Text(command)
        else:
            self.command_line = command.line
            self.border_title = Content(f"Case {case_id}")
            text = _render_command(command)
        warning_text = f"{EXCESS_SIGN} {warning}\n" if warning else ""
        self._warning = Content.styled(warning_text, "$text-warning")
        self._parts = [text] if facts is None else [facts.values, text, facts.judgement]
        self._show_parts()

    def show_errors(self, entry: RejectedEntry) -> None:
        """Show the errors of an entry, which has no command."""
        self.show("")
        self.reason = entry.errors[0]
        self.border_title = Content(f"Case {entry.name}")
        lines = "\n".join(f"{PROBLEM_SIGN} {error}" for error in entry.errors)
        next_step = _FITS_FORM if entry.fits_form else _TEXT_ONLY
        self._warning = Content.styled(lines, "$text-error") + f"\n\n{next_step}"
        self._show_parts()

    def on_resize(self) -> None:
        """Show the parts in the order for the new height."""
        if self._is_short != (self.size.height < _MIN_FACTS_HEIGHT):
            self._show_parts()

    def _show_parts(self) -> None:
        self._is_short = self.size.height < _MIN_FACTS_HEIGHT
        parts = self._parts
        if self._is_short:
            parts = [*parts[1:2], *parts[:1], *parts[2:]]  # the command first
        content = self._warning + Content.from_rich_text(Text("\n").join(parts))
        for block in self.query(TextBlock):  # none while the console is being closed
            block.show(content)


def _render_command(command: JobCommand) -> Text:
    quiet = Style(dim=True)
    text = Text().append(f"{command.heading}\n", quiet).append(f"{command.launcher_line}\n")
    environment = " ".join(command.added)
    for _, line in command.standalone:
        line = line.removeprefix(environment).lstrip()
        text.append("\nonly this case, without spbench\n", quiet).append(f"{line}\n")
    if command.secrets:
        text.append("\nset and export first\n", quiet).append(f"{' '.join(command.secrets)}\n")
    if environment:
        text.append("\nin the environment\n", quiet).append("\n".join(command.added))
    return text


class CasesPane(Vertical):
    """The table of cases, and the command of the selected case below it."""

    DEFAULT_CSS = """
    CasesPane > #cases-frame { height: 1fr; }
    CasesPane > CommandPane { height: auto; min-height: 5; max-height: 50%; }
    /* The table is as high as its cases, and at most 60 %; the command has the rest. */
    CasesPane.-fitted > #cases-frame { min-height: 7; max-height: 60%; }
    CasesPane.-fitted > CommandPane { height: 1fr; max-height: 100%; }
    /* In a small terminal the focused cases have the rows of the text, many also those below. */
    CasesPane#cases-pane.high { height: 99fr; }
    CasesPane.folded > CommandPane { height: 1fr; min-height: 3; max-height: 100%; padding: 0 2; }
    CasesPane.small #launches { display: none; }
    CasesPane.small.high #launches.shown { display: block; }
    """

    class CaseSelected(Message):
        """The user selected the case at a line."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    class CaseOpened(Message):
        """The user opened the selected case, to edit it."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._parsed: ParsedSuite | None = None
        self._command_timer: Timer | None = None
        self._page_cursor: object = None  # the row that the page has selected, not the user

    def compose(self) -> ComposeResult:
        yield CasesTable(id="cases-frame")
        yield CommandPane(id="command", classes="pane")

    def on_descendant_focus(self) -> None:
        """Give the table more rows in a low terminal while it has the focus."""
        self._arrange()

    def on_descendant_blur(self) -> None:
        """Give the rows back to the text and the command."""
        self._arrange()

    def _arrange(self) -> None:
        """Share the lines; a small terminal gives the focused cases more."""
        if self.screen.focused is None:  # the terminal has lost the focus
            return
        (width, height) = self.app.size
        is_small = width < _MIN_SPLIT_WIDTH and height < _MIN_SPLIT_HEIGHT
        is_high = is_small and self.cases.has_focus_within
        folds = is_high and self.cases.needed_height > _MAX_TABLE_SHARE * self.size.height
        self.set_class(is_small, "small")
        self.set_class(is_high, "high")
        self.set_class(folds, "folded")
        command = self.query_one(CommandPane)
        command.set_class(not folds, "pane")
        command.set_class(folds, "frameless")
        self._fit_table()

    def on_resize(self) -> None:
        """Give the table the rows that it needs if the pane is next to the text."""
        self._arrange()
        self._show_command_soon()  # in columns that fit the new width

    def _fit_table(self) -> None:
        is_roomy = self.size.height >= _MIN_FITTED_HEIGHT or self.has_class("high")
        is_folded = self.has_class("folded")
        self.set_class(is_roomy and not is_folded, "-fitted")
        height = self.cases.needed_height
        if is_folded:
            height = min(height, self.size.height - _FOLDED_HEIGHT)
        self.cases.styles.height = height if is_roomy else "1fr"

    @property
    def cases(self) -> CasesTable:
        """The table of the cases."""
        return self.query_one(CasesTable)

    @property
    def case(self) -> Case | None:
        """The case under the cursor."""
        return self.cases.case

    @property
    def has_command_line(self) -> bool:
        """Whether the launch line of the selected case is known."""
        return bool(self.query_one(CommandPane).command_line)

    @property
    def has_form(self) -> bool:
        """Whether a form can edit the entry under the cursor."""
        rejected = self._rows.rejected_entry(self.cases.table.cursor_key)
        return self.selected_line is not None and (rejected is None or rejected.fits_form)

    @property
    def is_empty(self) -> bool:
        """Whether no case is known: the suite has none, or errors since it was opened."""
        return not self._rows.keys()

    @property
    def _rows(self) -> SuiteCaseRows:
        return self.cases.rows

    @property
    def selected_line(self) -> int | None:
        """The line of the entry under the cursor; None if the text is invalid YAML."""
        position = self.find_selected()
        return position.line if position is not None and self._rows.current else None

    def find_selected(self) -> EntryPosition | None:
        """Return the entry under the cursor; None without one."""
        return self._rows.find_position(self.cases.table.cursor_key)

    def show(self, parsed: ParsedSuite, line: int, keep_case: bool = False) -> None:
        """Show the cases of a text, and its entries with errors.

        If no entries can be read, the previous cases are kept, greyed out.

        Args:
            parsed: The text.
            line: The line of the case to select.
            keep_case: Whether the selected case stays selected, unless other cases have come back
                or the text no longer has it.
        """
        key = self.cases.table.cursor_key
        previous_ids = set(self._rows.keys())
        previous = self._rows
        if parsed.problems and not parsed.spans:
            rows = replace(previous, current=False)
        else:
            rows = SuiteCaseRows(
                parsed.cases,
                parsed.rejected_entries,
                parsed.spans,
                excess_by_case=parsed.excess_by_case,
            )
        if not parsed.problems:
            self._parsed = parsed
            self._show_estimate(parsed)
        self.cases.show(rows, estimating=not parsed.problems)
        restored = [id for id in self.cases.table.matching_keys if id not in previous_ids]
        if keep_case and restored:
            self.cases.table.move_to(restored[0])
        elif not keep_case or rows.find_position(key) is None:
            self.select_line(line)
        elif key is not None:
            self.cases.table.move_to(key)  # scrolls to it, as rows above it may be new
        self._page_cursor = self.cases.table.cursor_key
        self._arrange()
        self._show_command()

    def clear(self) -> None:
        """Remove all cases, because another file is opened."""
        self._parsed = None
        self.cases.clear()
        self.query_one(CommandPane).show(NO_CASE)

    def select_line(self, line: int) -> None:
        """Select the first shown case of the entry at a line, unless it has the cursor."""
        table = self.cases.table
        ids = self._rows.list_ids_on_line(line)
        if ids and table.cursor_key not in ids:
            shown = set(table.matching_keys)
            first = next((id for id in ids if id in shown), None)
            if first is not None:
                table.move_to(first)
        self._page_cursor = table.cursor_key

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the command of a case, and its line if the user selected it."""
        event.stop()
        if event.key != self.cases.table.cursor_key:
            return  # the cursor has moved on, and another message follows
        self._show_command_soon()
        if event.key != self._page_cursor:
            self.post_selection()
        self._page_cursor = None

    def on_line_table_row_selected(self, event: LineTable.RowSelected) -> None:
        """Select a case, and edit it."""
        event.stop()
        self.post_selection()
        self.post_message(self.CaseOpened())

    def post_selection(self) -> None:
        """Post the line of the selected case, for the editor."""
        position = self.find_selected()
        if position is not None:
            self.post_message(self.CaseSelected(position.line))

    def _show_command_soon(self) -> None:
        if self._command_timer is not None:
            self._command_timer.stop()
        self._command_timer = self.set_timer(COMMAND_DELAY, self._show_command)

    def _show_command(self) -> None:
        case = self.case
        parsed = self._parsed
        rejected = self._rows.rejected_entry(self.cases.table.cursor_key)
        if case is not None and parsed is not None and case in parsed.cases:
            self._compute_command(parsed, case, self.cases.estimate)
        elif rejected is not None:
            self.workers.cancel_group(self, "command")
            self.query_one(CommandPane).show_errors(rejected)
        elif self.is_empty or case is not None:
            self.workers.cancel_group(self, "command")
            self.query_one(CommandPane).show(self._explain_absence())

    def _explain_absence(self) -> str:
        if not self._rows.current or self._rows.cases:
            return _WITH_ERRORS
        return NO_CASE if self._parsed is None else EMPTY_SUITE

    @work(exclusive=True, group="estimate", description="the duration of the suite")
    async def _show_estimate(self, parsed: ParsedSuite) -> None:
        launches = await asyncio.to_thread(describe_launches, parsed)
        estimate = await asyncio.to_thread(estimate_parsed, parsed)
        if parsed is self._parsed:  # no other text was parsed in the meantime
            self.cases.show_launches(launches)
            self.cases.show_estimate(estimate)
            self._arrange()
            self._show_command()

    # Without a description Textual would print the arguments: 0.2 s for a suite of 2,000 cases.
    @work(exclusive=True, group="command", description="the launch command of a case")
    async def _compute_command(
        self, parsed: ParsedSuite, case: Case, estimate: CaseEstimate | None
    ) -> None:
        width = self.query_one(CommandPane).scrollable_content_region.width
        command = await asyncio.to_thread(find_command, parsed, case.id)
        facts = await asyncio.to_thread(read_case_facts, parsed.text, case, estimate, width)
        warning = parsed.excess_by_case.get(case.id, "")
        self.query_one(CommandPane).show(command, case.id, warning, facts)
