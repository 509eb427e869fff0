"""Export of a run or a comparison: the dialog, the formats and the content."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, RadioButton, RadioSet, Static

from spbench.errors import SpbenchError, UsageError
from spbench.record.runs.files import write_file
from spbench.report.comparison.model import RunComparison
from spbench.report.export import EXPORT_FORMATS, export_comparison, export_text
from spbench.report.recorded import RecordedRun
from spbench.suites.pipe_files import expand_user_path
from spbench.tui.dialogs import Modal
from spbench.tui.page import Page

PAGE_FORMAT = "html"
"""The format of an HTML page."""
_TITLES = {
    PAGE_FORMAT: "HTML, a page to look at and to send",
    "csv": "CSV, a row for each case and metric",
    "json": "JSON, all that was recorded",
    "md": "Markdown, a table for a page or a thread",
}


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """The format, given by its file suffix, and the file of an export."""

    format: str
    path: Path


class _FormatButton(RadioButton):
    """A radio button that shows its state by a sign as well as by colour."""

    def render(self) -> Content:
        """Return the sign and the title."""
        self.BUTTON_INNER = "●" if self.value else "○"
        return super().render()


class ExportDialog(Modal[ExportChoice | None]):
    """A dialog that returns format and file, or None if the user leaves with Escape.

    Args:
        subject: Describes the exported object, for the question.
        stem: The proposed file without suffix.
        formats: The available formats, the proposed one first.
    """

    HELP = """\
A file and its format. Up and Down choose the format and change the ending of the name; a typed
ending chooses the format. Enter writes the file, Escape leaves. A file that is there is replaced
only after a question."""
    AUTO_FOCUS = "#path"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="dialog.leave", tooltip="Export nothing"),
        Binding("up", "choose_format(-1)", "Format above", id="export.up"),
        Binding("down", "choose_format(1)", "Format below", id="export.down"),
    ]
    DEFAULT_CSS = """
    ExportDialog RadioSet { width: 1fr; border: none; padding: 0; background: transparent; }
    """

    def __init__(self, subject: str, stem: Path, formats: Sequence[str]) -> None:
        super().__init__()
        self._subject = subject
        self._stem = stem
        self._formats = formats

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_subtitle = "Up and Down choose the format"
            yield Static(f"Export {self._subject} as", markup=False)
            with RadioSet(id="kind") as formats:
                formats.can_focus = False  # the dialog has its keys
                for name in self._formats:
                    yield _FormatButton(
                        _TITLES.get(name, name), value=name == self._formats[0], id=name
                    )
            yield Input(f"{self._stem}.{self._formats[0]}", id="path", compact=True)
            with Horizontal():
                yield Button("Cancel (Esc)", id="leave", compact=True)
                yield Button("Export (Enter)", id="export", variant="primary", compact=True)

    @property
    def _format(self) -> str:
        return self._formats[max(0, self.query_one(RadioSet).pressed_index)]

    def on_radio_set_changed(self, event: RadioSet.Changed) -> None:
        """Change the suffix of the file to that of the format, if it is a known suffix."""
        path_input = self.query_one(Input)
        stem, suffix = _split_suffix(path_input.value)
        if suffix in self._formats:
            path_input.value = f"{stem}.{self._format}"

    def on_input_changed(self, event: Input.Changed) -> None:
        """Select the format of the file's suffix."""
        _, suffix = _split_suffix(event.value)
        if suffix in self._formats:
            self.query_one(f"#{suffix}", RadioButton).value = True

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Export to that file."""
        self._submit()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Export, or leave."""
        if event.button.id == "export":
            self._submit()
        else:
            self.dismiss(None)

    def action_choose_format(self, step: int) -> None:
        """Choose the format above or below."""
        index = self._formats.index(self._format) + step
        self.query_one(f"#{self._formats[index % len(self._formats)]}", RadioButton).value = True

    def action_leave(self) -> None:
        """Export nothing."""
        self.dismiss(None)

    def _submit(self) -> None:
        text = self.query_one(Input).value.strip()
        if not text:
            return
        try:
            path = expand_user_path(Path(), text)
        except UsageError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.dismiss(ExportChoice(self._format, path))


def _split_suffix(path: str) -> tuple[str, str]:
    """Return the parts before and after the last dot."""
    stem, _, suffix = path.rpartition(".")
    return stem, suffix


def describe_export(shown: RecordedRun | RunComparison) -> tuple[str, str]:
    """Return a description for the dialog, and a file name without suffix."""
    if isinstance(shown, RunComparison):
        return "the comparison", f"{shown.a.id}--{shown.b.id}"
    return f"the run {shown.summary.id}", shown.summary.id


def render_export(shown: RecordedRun | RunComparison, format_: str) -> str:
    """Return the content of an export in one of the formats of `list_export_formats`."""
    if isinstance(shown, RunComparison):
        return export_comparison(shown, format_)
    if format_ == PAGE_FORMAT:
        from spbench.report.formats.page.document import render_page

        return render_page(shown)
    return export_text(shown, format_)


def list_export_formats(shown: RecordedRun | RunComparison) -> tuple[str, ...]:
    """Return the formats for the export, the default first."""
    return EXPORT_FORMATS if isinstance(shown, RunComparison) else (PAGE_FORMAT, *EXPORT_FORMATS)


async def export_shown(page: Page, shown: RecordedRun | RunComparison) -> None:
    """Ask for format and file, and write it; ask before replacing a file."""
    subject, stem = describe_export(shown)
    path = page.context.options.folder / stem
    dialog = ExportDialog(subject, path, list_export_formats(shown))
    choice = await page.app.push_screen_wait(dialog)
    if choice is None or not await page.confirm_overwrite(choice.path):
        return
    try:
        text = await asyncio.to_thread(render_export, shown, choice.format)
        await asyncio.to_thread(write_file, choice.path, text)
    except SpbenchError as error:
        title = "not exported"
        message = str(error)
        page.app.notify(message, title=title, severity="error", timeout=10, markup=False)
    else:
        page.app.notify(f"exported to {choice.path}", markup=False)
