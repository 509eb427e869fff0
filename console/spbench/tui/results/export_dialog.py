"""The dialog that asks for the file and the format of an export."""

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

from spbench.tui.dialogs import Modal

_TITLES = {
    "html": "HTML, a page to look at and to send",
    "csv": "CSV, a row for each case and metric",
    "json": "JSON, all that was recorded",
    "md": "Markdown, a table for a page or a thread",
}


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """A format, by its file's ending, and a file."""

    kind: str
    path: Path


class _Format(RadioButton):
    """A format whose sign tells that it is chosen, and not its colour alone."""

    def render(self) -> Content:
        """Return sign and title."""
        self.BUTTON_INNER = "●" if self.value else "○"
        return super().render()


class ExportDialog(Modal[ExportChoice | None]):
    """Asks for format and file; None where it is left with Escape.

    Args:
        what: What is exported, for the question.
        stem: The file as proposed, without the ending that the format gives it.
        kinds: The formats that there are, the proposed one first.
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

    def __init__(self, what: str, stem: Path, kinds: Sequence[str]) -> None:
        super().__init__()
        self._what = what
        self._stem = stem
        self._kinds = kinds

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(f"Export {self._what} as", markup=False)
            with RadioSet(id="kind"):
                for kind in self._kinds:
                    yield _Format(_TITLES.get(kind, kind), value=kind == self._kinds[0], id=kind)
            yield Input(f"{self._stem}.{self._kinds[0]}", id="path", compact=True)
            with Horizontal():
                yield Button("Cancel (esc)", id="leave", compact=True)
                yield Button("Export (enter)", id="export", variant="primary", compact=True)

    @property
    def _kind(self) -> str:
        return self._kinds[max(0, self.query_one(RadioSet).pressed_index)]

    def on_radio_set_changed(self, event: RadioSet.Changed) -> None:
        """Give the file the ending of the format, unless the reader chose another one."""
        line = self.query_one(Input)
        stem, ending = _split(line.value)
        if ending in self._kinds:
            line.value = f"{stem}.{self._kind}"

    def on_input_changed(self, event: Input.Changed) -> None:
        """Take the format that the file's ending names."""
        _, ending = _split(event.value)
        if ending in self._kinds:
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
            self.dismiss(ExportChoice(self._kind, Path(text).expanduser()))


def _split(path: str) -> tuple[str, str]:
    """Return what stands before the last dot, and what behind it."""
    stem, _, ending = path.rpartition(".")
    return stem, ending
