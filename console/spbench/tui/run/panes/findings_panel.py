"""The panel with the findings of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from spbench.tui.run.findings import MUTED, RunFinding
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import TextBlock


class FindingsPanel(VerticalScroll):
    """The findings, one below the other."""

    HELP = """\
The findings of the run: slow ranks and for how long, failed checks with their ranks and the largest
error, why cases did not pass, and findings of the run itself. "No slow host or rank" counts quiet
cases of compute and memory that were timed for 20 ms or more. With fewer than ten of them, a rank
is slow from 1.3x the median on, a link from 1.5x on. A rank that is slow only by its mean was
interrupted. y copies all; up and down scroll. Enter goes to the next failed or slow rank, like
n."""
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding(
            "findings.next-problem",
            "enter",
            "screen.next_problem",
            "Next problem",
            "The next failed or slow rank, of any case",
        ),
    ]
    DEFAULT_CSS = """
    FindingsPanel { height: 1fr; scrollbar-size: 1 1; scrollbar-gutter: stable; }
    FindingsPanel Static { height: auto; }
    .frameless FindingsPanel Static { padding-right: 1; }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = TextBlock("", markup=False)
        self._shown: list[RunFinding] | None = None

    def compose(self) -> Iterator[TextBlock]:
        yield self._text

    @property
    def text_lines(self) -> int:
        """The number of lines of the findings, as far as they are laid out."""
        return self._text.size.height

    def show(self, findings: list[RunFinding]) -> None:
        """Show these findings."""
        if findings == self._shown:
            return
        self._shown = findings
        text = Content("\n").join(finding.content() for finding in findings)
        content = text or Content.assemble(("no problems found so far", MUTED))
        self._text.show(content)
