"""The page while no suite is open: first steps, and the file under the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from spbench.tui.suites.start.file_facts import FileFacts, read_file_facts, render_file_facts
from spbench.tui.widgets.text import TextBlock, cell_width

if TYPE_CHECKING:
    from spbench.engine.plan import Request

PREVIEW_DELAY = 0.1
"""Time from the selection of a file until it is read, in seconds."""
PURPOSE = "spbench measures how fast a cluster computes, communicates and trains models."
CHECKS = "It checks each result against an independent reference."
STEPS = (
    ("Enter", "open the selected suite"),
    ("F5", "run the selected suite"),
    ("Ctrl+N", "start a new suite"),
    ("I", "copy suites into this folder"),
    ("p", "play a recorded run"),
)
PAGE_PURPOSES = (
    ("1 Suites", "write and start suites"),
    ("2 Run", "watch the cases and ranks"),
    ("3 Results", "compare runs"),
    ("4 Hosts", "examine hosts and links"),
    ("5 Plan", "divide a network among devices"),
)
COPY_NOTE = "F5 writes a copy to suites/"
_GAP = 4
_MIN_SPACIOUS_HEIGHT = 30
"""Rows of the pane from which the lists have headings."""


class StartPane(Vertical):
    """The first steps and the pages, and below them the file under the cursor.

    Args:
        build_request: Returns the request for a run of a suite.
        last_suite: The suite that was last opened from this folder, if known.
    """

    DEFAULT_CSS = """
    StartPane > #welcome { height: auto; border: round $foreground 30%; }
    StartPane > FilePreview { height: 1fr; }
    """

    def __init__(
        self, build_request: Callable[[Path], Request], last_suite: Path | None, id: str
    ) -> None:
        super().__init__(id=id)
        self._build_request = build_request
        self._last_suite = last_suite

    def compose(self) -> ComposeResult:
        welcome = Static("", id="welcome", classes="pane")
        welcome.border_title = "Start here"
        yield welcome
        yield FilePreview(self._build_request)

    def on_resize(self, event: events.Resize) -> None:
        """Fit the first steps to the new size."""
        is_spacious = event.size.height >= _MIN_SPACIOUS_HEIGHT
        width = event.size.width - 4  # the border and the padding
        content = render_welcome(self._last_suite, width, is_spacious=is_spacious)
        self.query_one("#welcome", Static).update(content)

    def show_file(self, path: Path | None, *, is_shipped: bool) -> None:
        """Show a file, or nothing for a folder."""
        preview = self.query_one(FilePreview)
        preview.border_subtitle = COPY_NOTE if is_shipped else ""
        preview.show_file(path)


class FilePreview(VerticalScroll):
    """A description of the suite file under the cursor, and its cases."""

    HELP: ClassVar[str] = """\
The suite file under the cursor of the files: its description, cases and ranks, the estimated
duration, and what it needs. Enter in the files opens it.
"""
    DEFAULT_CSS = "FilePreview { scrollbar-size: 0 1; }"

    def __init__(self, build_request: Callable[[Path], Request]) -> None:
        super().__init__(id="preview", classes="pane")
        self._build_request = build_request
        self._path: Path | None = None
        self._facts: FileFacts | None = None
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield TextBlock("", markup=False)

    def show_file(self, path: Path | None) -> None:
        """Show a file after a short time, unless another one is selected in the meantime."""
        if self._timer is not None:
            self._timer.stop()
        self._path = path
        self._timer = self.set_timer(PREVIEW_DELAY, self._start_reading)

    def _start_reading(self) -> None:
        if self.display and self._path is not None:
            self._read(self._path)

    # Without a description Textual would print the arguments.
    @work(exclusive=True, group="preview", description="the facts about a suite file")
    async def _read(self, path: Path) -> None:
        facts = await asyncio.to_thread(lambda: read_file_facts(self._build_request(path)))
        if path == self._path:
            self._facts = facts
            self.border_title = Content(path.name)
            self._show_facts()
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Fit the columns of the cases to the new width."""
        self._show_facts()

    def _show_facts(self) -> None:
        width = self.scrollable_content_region.width
        if self._facts is not None and width:
            for block in self.query(TextBlock):  # none while the console is being closed
                block.show(render_file_facts(self._facts, width))


def render_welcome(last_suite: Path | None, width: int, *, is_spacious: bool) -> Content:
    """Return the purpose of spbench, the first steps and the pages in ``width`` cells.

    Without much space, the lists have no headings.
    """
    steps = [_render_entry(key, text, STEPS) for key, text in STEPS]
    if last_suite is not None:
        name = Content(f"last opened: {last_suite.name}").stylize("$text-muted")
        steps.insert(1, Content(" " * _find_indent(STEPS)) + name)
    pages = [_render_entry(name, text, PAGE_PURPOSES) for name, text in PAGE_PURPOSES]
    purpose = [PURPOSE]
    if is_spacious:
        steps.insert(0, Content.styled("First steps", "bold $text-primary"))
        pages.insert(0, Content.styled("Pages", "bold $text-primary"))
        purpose.append(CHECKS)
    lines = [Content(" ".join(purpose))]
    if is_spacious:
        lines.append(Content(""))
    lines += _place_side_by_side(steps, pages, width) or [*steps, Content(""), *pages]
    return Content("\n").join(lines)


def _render_entry(key: str, text: str, entries: Iterable[tuple[str, str]]) -> Content:
    return Content.assemble((key.ljust(_find_indent(entries)), "bold $text-accent"), text)


def _find_indent(entries: Iterable[tuple[str, str]]) -> int:
    return max(cell_width(key) for key, _ in entries) + 2


def _place_side_by_side(
    left: Sequence[Content], right: Sequence[Content], width: int
) -> list[Content]:
    """Return two lists next to each other; empty if they are too wide."""
    left_width = max(line.cell_length for line in left)
    if left_width + _GAP + max(line.cell_length for line in right) > width:
        return []
    blank = Content("")
    return [
        first.pad_right(left_width + _GAP - first.cell_length) + second
        for first, second in zip_longest(left, right, fillvalue=blank)
    ]
