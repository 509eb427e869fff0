"""The problems of the text, each with its place; choosing one goes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from spbench.errors import Diagnostic
from spbench.tui.suites.editor import PROBLEM_SIGN

MAX_PROBLEMS = 200
"""How many problems are listed; the rest comes up as these are mended."""


class ProblemList(OptionList):
    """The problems of the text; it takes no room where there are none."""

    HELP: ClassVar[str] = "What the loader says is wrong, by line and column. Enter goes there."
    DEFAULT_CSS = """
    ProblemList {
        height: auto; max-height: 5; border: none; padding: 0; background: $surface;
        display: none;
        &.some { display: block; }
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: Sequence[Diagnostic] = ()

    def show(self, problems: Sequence[Diagnostic]) -> None:
        """List these problems."""
        if problems == self._shown:
            return
        self._shown = problems
        self.clear_options()
        self.add_options(Option(_line(problem)) for problem in problems[:MAX_PROBLEMS])
        self.set_class(bool(problems), "some")

    def get_problem(self, index: int) -> Diagnostic:
        """Return a problem by its place in the list."""
        return self._shown[index]


def _line(problem: Diagnostic) -> Content:
    place = f"{PROBLEM_SIGN} {problem.line}:{problem.column}"
    return Content.assemble((place, "$text-error"), "  ", problem.message)
