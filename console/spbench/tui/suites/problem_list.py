"""The problems of a suite's text, below the editor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from spbench.errors import Diagnostic
from spbench.tui.widgets.glyphs import PROBLEM_SIGN

MAX_PROBLEMS = 200
"""Largest number of listed problems."""


class ProblemList(OptionList):
    """The problems of the text; hidden if there are none."""

    HELP: ClassVar[str] = """\
The errors of the text, with line and column. Enter moves the cursor to one."""
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
        self.add_options(Option(_render_problem(problem)) for problem in problems[:MAX_PROBLEMS])
        self.set_class(self.option_count > 0, "some")

    def find_next(self, row: int, column: int) -> Diagnostic | None:
        """Return the first problem after a place of the text, or else the first one.

        Row and column are counted from 0.
        """
        problems = sorted(self._shown, key=_get_position)
        later = [problem for problem in problems if _get_position(problem) > (row + 1, column + 1)]
        return next(iter([*later, *problems]), None)

    def get_problem(self, index: int) -> Diagnostic:
        """Return a problem by its index in the list."""
        return self._shown[index]


def _get_position(problem: Diagnostic) -> tuple[int, int]:
    return problem.line, problem.column


def _render_problem(problem: Diagnostic) -> Content:
    position = f"{PROBLEM_SIGN} {problem.line}:{problem.column}"
    return Content.assemble((position, "$text-error"), "  ", problem.message)
