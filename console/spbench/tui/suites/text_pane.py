"""The text of a suite, and below it its problems; it is read again after each change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import OptionList, TextArea

from spbench.engine.estimate import RunEstimate
from spbench.engine.plan import Request
from spbench.errors import SpbenchError
from spbench.suites.case import Suite
from spbench.tui.suites.document import SuiteDocument
from spbench.tui.suites.editor import PROBLEM_SIGN, SuiteEditor
from spbench.tui.suites.problems import ProblemList
from spbench.tui.suites.reading import ParsedSuite, estimate_suite, parse_text
from spbench.tui.suites.recovery import RecoveryFile, UnsavedText
from spbench_core.quantities import format_quantity

PARSE_DELAY = 0.15
"""Seconds without a key until the text is read."""
RECOVERY_DELAY = 1.0
"""Seconds after a change until the unsaved text is kept in a file."""
UNSAVED = "●"
NO_SUITE = """\
spbench measures what deep learning over many nodes asks of a cluster, and checks each number \
against an independent reference.

No suite is open. Enter on one of the files opens it (F2 shows them), F5 runs it; Ctrl+N begins a \
new one. `I`, or `spbench init`, writes the suites that come with spbench into this folder."""


class TextPane(Vertical):
    """An editor of one suite file.

    Attributes:
        document: The file; None before one is opened.
    """

    DEFAULT_CSS = """
    TextPane { background: $surface; }
    TextPane > ProblemList { border-top: solid $foreground 30%; }
    """

    class TextParsed(Message):
        """The text was read as it stands now."""

        def __init__(self, parsed: ParsedSuite) -> None:
            super().__init__()
            self.parsed = parsed

    class CursorMoved(Message):
        """The cursor is on another line."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def __init__(
        self, build_request: Callable[[Path], Request], readonly: bool, id: str, classes: str
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.document: SuiteDocument | None = None
        self._request_of = build_request
        self._readonly = readonly
        self._saved = ""
        self._errors = 0
        self._title = ""
        self._reading: ParsedSuite | None = None
        self._pause: Timer | None = None
        self._keeping: Timer | None = None
        self._not_kept = False
        self._writing = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield SuiteEditor(id="editor")
        yield ProblemList(id="problems")

    def on_mount(self) -> None:
        """Wait for a suite."""
        self.editor.read_only = True
        self.editor.placeholder = NO_SUITE
        self._entitle()

    @property
    def editor(self) -> SuiteEditor:
        """The editor."""
        return self.query_one(SuiteEditor)

    @property
    def has_changes(self) -> bool:
        """Whether the text differs from what was read or written last; a new suite's always does.

        One that comes with spbench is not missed as long as nothing of it was changed.
        """
        document = self.document
        if document is None:
            return False
        return document.is_new or self.editor.text != self._saved

    def open(self, document: SuiteDocument) -> None:
        """Edit another file."""
        self.discard_recovery()
        self.document = document
        self.editor.read_only = self._readonly
        self.editor.placeholder = ""
        self.editor.load_text(document.text)
        self._saved = self.editor.text
        self._entitle()
        self.schedule_parse(0)

    def mark_saved(self, document: SuiteDocument) -> None:
        """Note that the text was saved."""
        self.document = document
        self._saved = document.text
        if not self.has_changes:  # there may be a key since
            self.discard_recovery()
        self._entitle()

    def _entitle(self) -> None:
        title = "Suite" if self.document is None else self.document.path.name
        if self.has_changes:
            title = f"{UNSAVED} {title} not saved (Ctrl+S)"
        if self._errors:
            title += f"  {PROBLEM_SIGN} {format_quantity(self._errors, 'error')}"
        if title != self._title:  # a new title draws the whole pane again
            self._title = title
            self.border_title = Content(title)

    # The unsaved text

    async def restore(self, unsaved: UnsavedText, file: RecoveryFile) -> None:
        """Edit an unsaved text of the file that is open; undo leads back to the file's.

        Args:
            unsaved: The text.
            file: Where another console kept it; from now on this one does.
        """
        assert self.document is not None  # its file was opened
        # Where the file has changed since, saving asks before it writes over that.
        self.document = SuiteDocument(self.document.path, unsaved.stored)
        self.editor.replace_text(unsaved.text, 1)
        self._entitle()
        self.schedule_parse(0)
        await self._kept()
        if file != self.recovery_file:
            file.delete()

    def discard_recovery(self) -> None:
        """Remove the kept text of the file that is open: it was saved, or nobody wants it."""
        if self._keeping is not None:
            self._keeping.stop()
            self._keeping = None
        if (file := self.recovery_file) is not None:
            file.delete()

    @property
    def recovery_file(self) -> RecoveryFile | None:
        """Where the unsaved text is kept; None where nothing is open, or may be written."""
        if self.document is None or self._readonly:
            return None
        path = self.document.path
        return RecoveryFile.locate(self._request_of(path).home, path)

    def _keep_soon(self) -> None:
        if self._keeping is None and self.recovery_file is not None:
            self._keeping = self.set_timer(RECOVERY_DELAY, self._begin_to_keep)

    def _begin_to_keep(self) -> None:
        self._keeping = None
        if self._whole:
            self._keep()

    @work(group="keep")
    async def _keep(self) -> None:
        await self._kept()

    async def _kept(self) -> None:
        """Keep the text as it is now, or nothing where it is saved."""
        document = self.document
        file = self.recovery_file
        if document is None or file is None:
            return
        async with self._writing:
            if self.has_changes:
                text = self.editor.text
                try:
                    await asyncio.to_thread(file.write, document.path, document.stored, text)
                except SpbenchError as error:
                    self._complain_once(f"unsaved text is not kept: {error}")
        if file == self.recovery_file and self._whole and not self.has_changes:
            file.delete()  # it was saved meanwhile

    def _complain_once(self, sentence: str) -> None:
        if not self._not_kept:
            self._not_kept = True
            self.app.notify(sentence, severity="warning", timeout=10, markup=False)

    # Reading

    async def parse(self) -> ParsedSuite:
        """Return what the text comes to as it stands now."""
        text = self.editor.text
        document = self.document
        if self._reading is None or self._reading.text != text:
            assert document is not None  # an action needs an open suite
            return await asyncio.to_thread(parse_text, text, self._request_of(document.path))
        return self._reading

    def estimate_suite(self, suite: Suite) -> RunEstimate:
        """Return the estimated duration of a suite that would be run from here."""
        return estimate_suite(suite, self._request_of(suite.path))

    def schedule_parse(self, pause: float = PARSE_DELAY) -> None:
        """Read the text when the keys rest, or at once where the hosts have changed."""
        if self._pause is not None:
            self._pause.stop()
        if pause:
            self._pause = self.set_timer(pause, self._begin_to_read)
        else:
            self._reading = None
            self._begin_to_read()

    def _begin_to_read(self) -> None:
        if self.document is not None:
            self._read()

    @property
    def _whole(self) -> bool:
        """Whether the pane has its parts: where the console ends they go before it."""
        return bool(self.query(SuiteEditor) and self.query(ProblemList))

    @work(exclusive=True, group="read")
    async def _read(self) -> None:
        if not self._whole:
            return
        reading = await self.parse()
        if not self._whole or reading.text != self.editor.text:
            return  # the console ends, or there is a key since, which has it read again
        self._reading = reading
        problems = reading.problems
        marks = {problem.line: problem.column for problem in reversed(problems)}
        self.editor.mark_problems(marks)
        self.query_one(ProblemList).show(problems)
        self._errors = len(problems)
        self._entitle()
        self.post_message(self.TextParsed(reading))

    # Events

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Read the text after a change."""
        event.stop()
        self._entitle()
        self._keep_soon()
        self.schedule_parse()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        """Say on which line the cursor is."""
        event.stop()
        self.post_message(self.CursorMoved(self.editor.cursor_line))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go to the place of a problem."""
        event.stop()
        problem = self.query_one(ProblemList).get_problem(event.option_index)
        self.editor.go_to(problem.line, problem.column)
        self.editor.focus()
