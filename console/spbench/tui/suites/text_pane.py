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

from spbench.engine.plan import Request
from spbench.tui.suites.document import SuiteDocument
from spbench.tui.suites.editor import SIGN, SuiteEditor
from spbench.tui.suites.problems import ProblemList, counted
from spbench.tui.suites.reading import Reading, read

PAUSE = 0.15
"""Seconds without a key until the text is read."""
UNSAVED = "●"


class TextPane(Vertical):
    """An editor of one suite file.

    Attributes:
        document: The file; None before one is opened.
    """

    DEFAULT_CSS = """
    TextPane { background: $surface; }
    TextPane > ProblemList { border-top: solid $panel; }
    """

    class Read(Message):
        """The text was read as it stands now."""

        def __init__(self, reading: Reading) -> None:
            super().__init__()
            self.reading = reading

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def __init__(
        self, request_of: Callable[[Path], Request], readonly: bool, id: str, classes: str
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.document: SuiteDocument | None = None
        self._request_of = request_of
        self._readonly = readonly
        self._saved = ""
        self._errors = 0
        self._title = ""
        self._reading: Reading | None = None
        self._pause: Timer | None = None

    def compose(self) -> ComposeResult:
        yield SuiteEditor(id="editor")
        yield ProblemList(id="problems")

    def on_mount(self) -> None:
        """Wait for a suite."""
        self.editor.read_only = True
        self.editor.placeholder = (
            "No suite is open. Choose one of the files (F2 shows them), or make one with Ctrl+N."
        )
        self._entitle()

    @property
    def editor(self) -> SuiteEditor:
        """The editor."""
        return self.query_one(SuiteEditor)

    @property
    def changed(self) -> bool:
        """Whether the text differs from what was read or written last."""
        document = self.document
        return document is not None and (document.stored is None or self.editor.text != self._saved)

    def open(self, document: SuiteDocument) -> None:
        """Edit another file."""
        self.document = document
        self.editor.read_only = self._readonly
        self.editor.placeholder = ""
        self.editor.load_text(document.text)
        self._saved = self.editor.text
        self._entitle()
        self.read_soon(0)

    def written(self, document: SuiteDocument) -> None:
        """Note that the text was saved."""
        self.document, self._saved = document, document.text
        self._entitle()

    def _entitle(self) -> None:
        title = "Suite" if self.document is None else self.document.path.name
        if self.changed:
            title = f"{UNSAVED} {title} not saved (Ctrl+S)"
        if self._errors:
            title += f"  {SIGN} {counted(self._errors, 'error')}"
        if title != self._title:  # a new title draws the whole pane again
            self._title = title
            self.border_title = Content(title)

    # Reading

    async def reading(self) -> Reading:
        """Return what the text comes to as it stands now."""
        text, document = self.editor.text, self.document
        if self._reading is None or self._reading.text != text:
            assert document is not None  # an action needs an open suite
            return await asyncio.to_thread(read, text, self._request_of(document.path))
        return self._reading

    def read_soon(self, pause: float = PAUSE) -> None:
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
        reading = await self.reading()
        if not self._whole or reading.text != self.editor.text:
            return  # the console ends, or there is a key since, which has it read again
        self._reading = reading
        problems = reading.problems
        marks = {problem.line: problem.column for problem in reversed(problems)}
        self.editor.mark(marks)
        self.query_one(ProblemList).show(problems)
        self._errors = len(problems)
        self._entitle()
        self.post_message(self.Read(reading))

    # Events

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Read the text after a change."""
        event.stop()
        self._entitle()
        self.read_soon()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        """Say on which line the cursor is."""
        event.stop()
        self.post_message(self.Moved(self.editor.cursor_line))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go to the place of a problem."""
        event.stop()
        problem = self.query_one(ProblemList).at(event.option_index)
        self.editor.go_to(problem.line, problem.column)
        self.editor.focus()
