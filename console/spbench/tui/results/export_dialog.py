"""The dialog that asks for the file and the format of an export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, RadioButton, RadioSet, Static

from spbench.report.export import KINDS
from spbench.tui.modal import Modal

_TITLES = {
    "csv": "CSV, a row for each case and metric",
    "json": "JSON, all that was recorded",
    "md": "Markdown, a table for a page or a thread",
}


@dataclass(frozen=True, slots=True)
class Export:
    """A format of `KINDS`, and a file."""

    kind: str
    path: Path


class _Format(RadioButton):
    """A format whose sign tells that it is chosen, and not its colour alone."""

    def render(self) -> Content:
        """Return sign and title."""
        self.BUTTON_INNER = "●" if self.value else "○"
        return super().render()


class ExportDialog(Modal[Export | None]):
    """Asks for format and file; None where it is left with Escape.

    Args:
        what: What is exported, for the question.
        stem: The file as proposed, without the ending that the format gives it.
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
        width: 72; max-width: 90%; height: auto; padding: 1 2; background: $panel;
        border: round $primary;
    }
    ExportDialog RadioSet { margin: 1 0; width: 1fr; }
    ExportDialog Horizontal { height: auto; margin-top: 1; }
    ExportDialog Button { margin-right: 2; }
    """

    def __init__(self, what: str, stem: Path) -> None:
        super().__init__()
        self._what, self._stem = what, stem

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(f"Export {self._what} as", markup=False)
            with RadioSet(id="kind"):
                for kind in KINDS:
                    yield _Format(_TITLES.get(kind, kind), value=kind == KINDS[0], id=kind)
            yield Input(f"{self._stem}.{KINDS[0]}", id="path")
            with Horizontal():
                yield Button("Cancel (esc)", id="leave")
                yield Button("Export", id="export", variant="primary")

    @property
    def _kind(self) -> str:
        return KINDS[max(0, self.query_one(RadioSet).pressed_index)]

    def on_radio_set_changed(self, event: RadioSet.Changed) -> None:
        """Give the file the ending of the format, unless the reader chose another one."""
        line = self.query_one(Input)
        stem, ending = _split(line.value)
        if ending in KINDS:
            line.value = f"{stem}.{self._kind}"

    def on_input_changed(self, event: Input.Changed) -> None:
        """Take the format that the file's ending names."""
        _, ending = _split(event.value)
        if ending in KINDS:
            self.query_one(f"#{ending}", RadioButton).value = True

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Export to that file."""
        self._answer()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Export, or leave."""
        if event.button.id == "export":
            self._answer()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        """Export nothing."""
        self.dismiss(None)

    def _answer(self) -> None:
        text = self.query_one(Input).value.strip()
        if text:
            self.dismiss(Export(self._kind, Path(text).expanduser()))


def _split(path: str) -> tuple[str, str]:
    """Return what stands before the last dot, and what behind it."""
    stem, _, ending = path.rpartition(".")
    return stem, ending
