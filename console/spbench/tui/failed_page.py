"""The page that replaces a failed page, and the error report."""

from __future__ import annotations

import platform
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static
from textual.worker import WorkerFailed

from spbench.errors import SpbenchError
from spbench.record.runs.files import write_file
from spbench.tui.context import ConsoleContext
from spbench.tui.page import Page
from spbench.tui.widgets.keys import make_binding

REPORT_FOLDER = "crashes"
"""The folder of error reports in a home."""


def format_report(error: BaseException, page: str) -> str:
    """Return a report of an error on a page for the developers."""
    if isinstance(error, WorkerFailed):
        error = error.error
    names = ("spbench", "textual", "rich")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    summary = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    heading = f"spbench console: {summary} on the page {page}"
    system = f"{versions}, Python {platform.python_version()}, {platform.platform()}"
    utc_time = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    traceback_text = "".join(traceback.format_exception(error)).rstrip()
    return "\n".join([heading, f"{utc_time}, {system}", "", traceback_text])


def write_report(home: Path, report: str) -> Path | None:
    """Write a report into a home and return its path; None if it cannot be written."""
    path = home / REPORT_FOLDER / f"console-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.txt"
    try:
        write_file(path, report + "\n", mode=0o600, root=path.parent)
    except SpbenchError:
        return None
    return path


class FailedPage(Page):
    """A page that explains the failure of another page and shows the report.

    Args:
        context: The state that the pages share.
        page: The name of the page that failed.
        report: The error report.
        path: The file of the report; None if it was not written.
    """

    NAME = "failed"
    HELP = """\
A page failed: this is a defect of spbench, not a mistake of yours. The other pages and the run
continue. Y copies the report. Enter opens the page again and offers unsaved text of a suite."""
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("failed.open", "enter", "open", "Reopen", "Open the page again", show=True),
        make_binding("failed.copy", "y", "copy", "Copy report", "Copy the report", show=True),
    ]
    DEFAULT_CSS = """
    FailedPage #message { height: auto; padding: 1 2; }
    FailedPage VerticalScroll { height: 1fr; padding: 0 2; }
    """
    AUTO_FOCUS = "VerticalScroll"

    def __init__(self, context: ConsoleContext, page: str, report: str, path: Path | None) -> None:
        super().__init__(context)
        self._page = page
        self._report = report
        self._path = path

    def compose_body(self) -> ComposeResult:
        """Yield the message and the report."""
        title = dict(self.context.titles).get(self._page, self._page)
        location = f" The report is in {self._path}." if self._path else ""
        message = (
            f"The page {title} failed. The other pages and the run go on. Enter opens the page "
            f"again, y copies this report: please send it to the developers.{location}"
        )
        yield Static(message, id="message", markup=False)
        with VerticalScroll():
            yield Static(self._report, markup=False)

    def action_open(self) -> None:
        """Open the page again."""
        self.context.show_page(self._page)

    def action_copy(self) -> None:
        """Copy the report."""
        self.app.copy_to_clipboard(self._report)
        self.app.notify("report copied", timeout=3)
