"""Export of a run or a comparison: the dialog, the formats and the content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, RadioButton, RadioSet, Static

from spbench.report.comparison.model import RunComparison
from spbench.report.export import KINDS, export_comparison, export_text
from spbench.report.recorded import RecordedRun
from spbench.tui.dialogs import Modal

_TITLES = {
    "html": "HTML, a page to look at and to send",
    "csv": "CSV, a row for each case and metric",
    "json": "JSON, all that was recorded",
    "md": "Markdown, a table for a page or a thread",
}


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """The format, given by its file suffix, and the file of an export."""

    kind: str
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
        kinds: The available formats, the proposed one first.
    """

    HELP = """\
A file and its format. The ending of the name chooses the format, and the format the ending; Enter
writes the file, Escape leaves. A file that is there is replaced only after a question."""
    AUTO_FOCUS = "#path"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="dialog.leave", tooltip="Export nothing"),
    ]
    DEFAULT_CSS = """
    ExportDialog { align: center middle; }
    ExportDialog > Vertical {
        width: 72; max-width: 96%; height: auto; max-height: 100%; padding: 0 1;
        background: $panel; border: round $primary;
    }
    ExportDialog RadioSet { width: 1fr; border: none; padding: 0; background: $panel; }
    ExportDialog Input { background: $surface; }
    ExportDialog Horizontal { height: auto; }
    ExportDialog Button { margin-right: 2; }
    """

    def __init__(self, subject: str, stem: Path, kinds: Sequence[str]) -> None:
        super().__init__()
        self._subject = subject
        self._stem = stem
        self._kinds = kinds

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(f"Export {self._subject} as", markup=False)
            with RadioSet(id="kind"):
                for kind in self._kinds:
                    yield _FormatButton(
                        _TITLES.get(kind, kind), value=kind == self._kinds[0], id=kind
                    )
            yield Input(f"{self._stem}.{self._kinds[0]}", id="path", compact=True)
            with Horizontal():
                yield Button("Cancel (esc)", id="leave", compact=True)
                yield Button("Export (enter)", id="export", variant="primary", compact=True)

    @property
    def _kind(self) -> str:
        return self._kinds[max(0, self.query_one(RadioSet).pressed_index)]

    def on_radio_set_changed(self, event: RadioSet.Changed) -> None:
        """Change the suffix of the file to that of the format, if it is a known suffix."""
        line = self.query_one(Input)
        stem, ending = _split(line.value)
        if ending in self._kinds:
            line.value = f"{stem}.{self._kind}"

    def on_input_changed(self, event: Input.Changed) -> None:
        """Select the format of the file's suffix."""
        _, ending = _split(event.value)
        if ending in self._kinds:
            self.query_one(f"#{ending}", RadioButton).value = True

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Export to that file."""
        self._submit()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Export, or leave."""
        if event.button.id == "export":
            self._submit()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        """Export nothing."""
        self.dismiss(None)

    def _submit(self) -> None:
        text = self.query_one(Input).value.strip()
        if text:
            self.dismiss(ExportChoice(self._kind, Path(text).expanduser()))


def _split(path: str) -> tuple[str, str]:
    """Return the parts before and after the last dot."""
    stem, _, ending = path.rpartition(".")
    return stem, ending


PAGE_KIND = "html"
"""The format of an HTML page."""


def describe_export(result: RecordedRun | RunComparison) -> tuple[str, str]:
    """Return a description for the dialog, and a file name without suffix."""
    if isinstance(result, RunComparison):
        return "the comparison", f"{result.a.id}--{result.b.id}"
    return f"the run {result.summary.id}", result.summary.id


def render_export(result: RecordedRun | RunComparison, kind: str) -> str:
    """Return the content of an export in one of the formats of `list_export_kinds`."""
    if isinstance(result, RunComparison):
        return export_comparison(result, kind)
    if kind == PAGE_KIND:
        from spbench.report.formats.page.document import render_page

        return render_page(result)
    return export_text(result, kind)


def list_export_kinds(result: RecordedRun | RunComparison) -> tuple[str, ...]:
    """Return the formats for the export, the default first."""
    return KINDS if isinstance(result, RunComparison) else (PAGE_KIND, *KINDS)
