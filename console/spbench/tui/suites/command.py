"""The launch line of the chosen case, and the line that runs it without the console."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.engine.commands import JobCommand

NO_CASE = "The launch command of the chosen case stands here."


class CommandPane(VerticalScroll):
    """The command of the chosen case; y on the page copies its launch line with environment."""

    HELP: ClassVar[str] = """\
The launch line of the job that the chosen case runs in, exactly as it will be run on the chosen
hosts, and its environment; below it the line that runs this case alone, without the console. y
copies the launch line with its environment.
"""
    DEFAULT_CSS = "CommandPane { background: $surface; scrollbar-size: 0 1; }"

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.line = ""
        self.border_title = "Command"

    def compose(self) -> ComposeResult:
        yield Static(NO_CASE, markup=False)

    def show(self, command: JobCommand | str, title: str = "") -> None:
        """Show a case's command, or in words why there is none."""
        told = isinstance(command, JobCommand)
        self.line = command.line if isinstance(command, JobCommand) else ""
        self.border_title = Content(f"Command of {title}" if title and told else "Command")
        text = _lines(command) if isinstance(command, JobCommand) else Text(command)
        for lines in self.query(Static):  # none where the console is just being closed
            lines.update(text)


def _lines(command: JobCommand) -> Text:
    quiet = Style(dim=True)
    strong = Style(bold=True)
    text = Text().append(f"{command.heading}\n", quiet)
    text.append(command.launcher_line, strong)  # first: a short pane has no room for more
    if command.added:
        text.append("\nin its environment\n", quiet).append(" ".join(command.added))
    if command.secrets:
        text.append("\nset and export first\n", quiet).append(" ".join(command.secrets))
    for _, line in command.standalone:
        text.append("\nby hand, without the console\n", quiet).append(line)
    return text
