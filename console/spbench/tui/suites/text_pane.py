"""The text of a suite with its problems; it is parsed after each change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import OptionList, TextArea

from spbench.errors import SpbenchError
from spbench.tui.suites.disk_watch import CHECK_INTERVAL, NOTE_BY_DISK_STATE, DiskWatch
from spbench.tui.suites.document import SuiteDocument
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.parsed_suite import (
    ParsedSuite,
    SuiteForecast,
    forecast_suite,
    parse_text,
)
from spbench.tui.suites.problem_list import ProblemList
from spbench.tui.suites.recovery import RecoveryFile, UnsavedText
from spbench.tui.widgets.glyphs import PROBLEM_SIGN
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import Request
    from spbench.suites.case import Suite
    from spbench.suites.edit.outline import EntryLines

PARSE_DELAY = 0.15
"""Time without a key until the text is parsed, in seconds."""


class TextPane(Vertical):
    """An editor of one suite file; its lower border names an undone change.

    Attributes:
        document: The file; None before one is opened.
        error_count: The number of errors of the text as last parsed.
        backup_delay_s: Time from a change until the unsaved text is written to a file.
    """

    backup_delay_s = 1.0

    DEFAULT_CSS = """
    TextPane > ProblemList { border-top: solid $foreground 30%; }
    """

    class TextParsed(Message):
        """The current text was parsed; ``is_undone`` if undo or redo has made it."""

        def __init__(self, parsed: ParsedSuite, is_undone: bool) -> None:
            super().__init__()
            self.parsed = parsed
            self.is_undone = is_undone

    class CursorMoved(Message):
        """The cursor is on another line."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def __init__(
        self,
        build_request: Callable[[Path], Request],
        home: Path,
        readonly: bool,
        id: str,
        classes: str,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.document: SuiteDocument | None = None
        self._build_request = build_request
        self._home = home
        self._readonly = readonly
        self._saved = ""
        self.error_count = 0
        self._title = ""
        self._parsed: ParsedSuite | None = None
        self._parse_timer: Timer | None = None
        self._backup_timer: Timer | None = None
        self._reported_failure = False
        self._write_lock = asyncio.Lock()
        self._disk_watch: DiskWatch | None = None
        self._is_checking_disk = False
        self._undone_text: str | None = None
        self._goes_to_problem = False
        """Whether the file was just opened, so that the cursor goes to its first problem."""

    def compose(self) -> ComposeResult:
        yield SuiteEditor(id="editor")
        yield ProblemList(id="problems")

    def on_mount(self) -> None:
        """Watch the file on disk."""
        self.editor.read_only = True
        self._update_title()
        self.set_interval(CHECK_INTERVAL, self._start_disk_check)

    @property
    def editor(self) -> SuiteEditor:
        """The editor."""
        return self.query_one(SuiteEditor)

    @property
    def has_changes(self) -> bool:
        """Whether the text differs from the file; always true for a new suite.

        An unchanged copy of a shipped suite has no changes, although it has no file.
        """
        document = self.document
        if document is None:
            return False
        return document.is_new or self.editor.text != self._saved

    def open(self, document: SuiteDocument) -> None:
        """Edit another file."""
        self.delete_recovery_file()
        self._set_document(document)
        self.editor.read_only = self._readonly
        self.editor.load_text(document.text)
        self._saved = self.editor.text
        self._goes_to_problem = True
        self._update_title()
        self.schedule_parse(0)

    def mark_saved(self, document: SuiteDocument) -> None:
        """Record that the text was saved."""
        self._set_document(document)
        self._saved = document.text
        self.forget_step()
        if not self.has_changes:  # the user may have typed in the meantime
            self.delete_recovery_file()
        self._update_title()

    def reload(self, document: SuiteDocument) -> None:
        """Replace the text by that of the file, in one step that can be undone."""
        self._set_document(document)
        self.editor.replace_text(document.text, self.editor.cursor_line, "file read again")
        self._saved = self.editor.text
        self.delete_recovery_file()
        self._update_title()

    def go_to_next_problem(self) -> None:
        """Go to the next problem after the cursor, or to the first one."""
        problem = self.query_one(ProblemList).find_next(*self.editor.cursor_location)
        if problem is not None:
            self.editor.go_to(problem.line, problem.column)
            self.editor.focus()

    def show_problem(self, entry: EntryLines) -> None:
        """Go to the first problem of an entry, or to its first line."""
        problems = self._parsed.problems if self._parsed is not None else ()
        inside = (problem for problem in problems if entry.first <= problem.line <= entry.last)
        problem = next(inside, None)
        if problem is None:
            self.editor.go_to(entry.first)
        else:
            self.editor.go_to(problem.line, problem.column)
        self.editor.focus()

    def undo(self) -> int:
        """Undo the last change, and return the new line of the cursor, or 0."""
        return self._change_history(self.editor.undo)

    def redo(self) -> int:
        """Redo the last undone change; see `undo`."""
        return self._change_history(self.editor.redo)

    def _change_history(self, change: Callable[[], None]) -> int:
        location = self.editor.cursor_location
        change()
        self._undone_text = self.editor.text
        self.border_subtitle = Content(self.editor.last_step)
        return self.editor.cursor_line if self.editor.cursor_location != location else 0

    def forget_step(self) -> None:
        """Remove the undone change from the border, after the text was saved or run."""
        if self.border_subtitle:
            self.border_subtitle = ""

    def _set_document(self, document: SuiteDocument) -> None:
        self.document = document
        self._disk_watch = DiskWatch(document)

    def _start_disk_check(self) -> None:
        # A hung file system must not block one more thread at each check.
        if self._is_checking_disk or not self.screen.is_current:
            return
        if self._disk_watch is not None and self._is_composed:
            self._is_checking_disk = True
            self._check_disk(self._disk_watch)

    @work(group="disk")
    async def _check_disk(self, watch: DiskWatch) -> None:
        try:
            await asyncio.to_thread(watch.check)
        finally:
            self._is_checking_disk = False
        if watch is self._disk_watch and self._is_composed:
            self._update_title()

    def _update_title(self) -> None:
        document = self.document
        title = "Suite" if document is None else document.format_title(self.has_changes)
        if self._disk_watch is not None:
            title += NOTE_BY_DISK_STATE[self._disk_watch.state]
        if self.error_count:
            title += f"  {PROBLEM_SIGN} {format_quantity(self.error_count, 'error')}"
        if title != self._title:  # a new title draws the whole pane again
            self._title = title
            self.border_title = Content(title)

    async def restore(self, unsaved: UnsavedText, file: RecoveryFile) -> None:
        """Edit an unsaved text of the open file; undo restores the text of the file.

        Args:
            unsaved: The text.
            file: The recovery file of another console, which is replaced by one of this console.
        """
        assert self.document is not None  # the caller has opened the file
        # With the old content, saving asks before it overwrites later changes of the file.
        self._set_document(SuiteDocument(self.document.path, unsaved.stored))
        self.editor.replace_text(unsaved.text, 1, "unsaved text recovered")
        self._update_title()
        self.schedule_parse(0)
        await self._write_recovery_file()
        if file != self.recovery_file:
            file.delete()

    def delete_recovery_file(self) -> None:
        """Delete the recovery file, because the text was saved or discarded."""
        if self._backup_timer is not None:
            self._backup_timer.stop()
            self._backup_timer = None
        if (file := self.recovery_file) is not None:
            file.delete()

    @property
    def recovery_file(self) -> RecoveryFile | None:
        """The file for unsaved text; None without an open suite, or if readonly."""
        if self.document is None or self._readonly:
            return None
        path = self.document.path
        return RecoveryFile.locate(self._home, path)

    def _schedule_backup(self) -> None:
        if self._backup_timer is None and self.recovery_file is not None:
            self._backup_timer = self.set_timer(self.backup_delay_s, self._start_backup)

    def _start_backup(self) -> None:
        self._backup_timer = None
        if self._is_composed:
            self._back_up()

    @work(group="keep")
    async def _back_up(self) -> None:
        await self._write_recovery_file()

    async def _write_recovery_file(self) -> None:
        """Write the current text if it has changes; otherwise delete the recovery file."""
        document = self.document
        file = self.recovery_file
        if document is None or file is None:
            return
        async with self._write_lock:
            if self.has_changes:
                text = self.editor.text
                try:
                    await asyncio.to_thread(file.write, document.path, document.stored, text)
                except SpbenchError as error:
                    self._report_once(f"unsaved text is not kept: {error}")
        if file == self.recovery_file and self._is_composed and not self.has_changes:
            file.delete()  # the text was saved in the meantime

    def _report_once(self, message: str) -> None:
        if not self._reported_failure:
            self._reported_failure = True
            self.app.notify(message, severity="warning", timeout=10, markup=False)

    async def parse(self) -> ParsedSuite:
        """Return the current text as parsed."""
        text = self.editor.text
        document = self.document
        if self._parsed is None or self._parsed.text != text:
            assert document is not None  # an action needs an open suite
            return await asyncio.to_thread(self._parse_text, text, document.path)
        return self._parsed

    def _parse_text(self, text: str, path: Path) -> ParsedSuite:
        return parse_text(text, self._build_request(path))

    def forecast_suite(self, suite: Suite) -> SuiteForecast:
        """Return the forecast of a suite with the current launch settings."""
        return forecast_suite(suite, self._build_request(suite.path))

    def schedule_parse(self, delay: float = PARSE_DELAY) -> None:
        """Parse the text after a time without keys, or at once if ``delay`` is 0."""
        if self._parse_timer is not None:
            self._parse_timer.stop()
        if delay:
            self._parse_timer = self.set_timer(delay, self._start_parsing)
        else:
            self._parsed = None
            self._start_parsing()

    def _start_parsing(self) -> None:
        if self.document is not None:
            self._parse_current()

    @property
    def _is_composed(self) -> bool:
        """Whether the pane has its widgets; on exit they are removed before the pane."""
        return bool(self.query(SuiteEditor) and self.query(ProblemList))

    @work(exclusive=True, group="read")
    async def _parse_current(self) -> None:
        if not self._is_composed:
            return
        parsed = await self.parse()
        if not self._is_composed or parsed.text != self.editor.text:
            return  # the console ends, or the text has changed and will be parsed again
        self._parsed = parsed
        problems = parsed.problems
        marks = {problem.line: problem.column for problem in reversed(problems)}
        self.editor.mark_problems(marks)
        self.query_one(ProblemList).show(problems)
        self.error_count = len(problems)
        self._update_title()
        self.post_message(self.TextParsed(parsed, parsed.text == self._undone_text))
        self._undone_text = None
        if self._goes_to_problem and problems:
            self.editor.go_to(problems[0].line, problems[0].column)
        self._goes_to_problem = False

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Parse the text after a change."""
        event.stop()
        if self.editor.text != self._undone_text:
            self.forget_step()
        self._update_title()
        self._schedule_backup()
        self.schedule_parse()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        """Post the line of the cursor."""
        event.stop()
        self.post_message(self.CursorMoved(self.editor.cursor_line))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go to the position of a problem."""
        event.stop()
        problem = self.query_one(ProblemList).get_problem(event.option_index)
        self.editor.go_to(problem.line, problem.column)
        self.editor.focus()
