"""Arguments of the benchmarks, and a table of their figures and goals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table: a median, and optionally a goal.

    The goal is ``maximum`` or ``minimum``, in ``unit``.
    """

    name: str
    value: float
    unit: str
    maximum: float | None = None
    minimum: float | None = None

    @property
    def goal(self) -> str:
        """The text of the goal; `-` without one."""
        if self.maximum is not None:
            return f"at most {format_number(self.maximum)}"
        return "-" if self.minimum is None else f"at least {format_number(self.minimum)}"

    @property
    def outcome(self) -> str:
        """Return `met`, `NOT met`, or `-` without a goal."""
        if self.maximum is not None:
            return "met" if self.value <= self.maximum else "NOT met"
        if self.minimum is not None:
            return "met" if self.value >= self.minimum else "NOT met"
        return "-"


def make_argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a benchmark's docstring unchanged as help."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def format_figures(figures: Sequence[Figure]) -> str:
    """Return a line per figure: name, median, unit, goal, outcome."""
    width = max(len(figure.name) for figure in figures)
    lines = [f"{'':{width}} {'median':>10} {'':9} {'goal':>17} "]
    for figure in figures:
        measured = f"{format_number(figure.value):>10} {figure.unit:9}"
        lines.append(f"{figure.name:{width}} {measured} {figure.goal:>17}  {figure.outcome}")
    return "\n".join(lines)


def format_number(value: float) -> str:
    """Return a value with four significant digits, or grouped by thousands."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
