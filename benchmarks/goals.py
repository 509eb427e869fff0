"""Arguments of the benchmarks, and a small table of their figures beside their goals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: a figure, a median, and the goal where there is one.

    The goal is ``most`` where less is better, ``least`` where more is better, both in ``unit``.
    """

    what: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def goal(self) -> str:
        """The goal in words; a dash where there is none."""
        if self.most is not None:
            return f"at most {number(self.most)}"
        return "-" if self.least is None else f"at least {number(self.least)}"

    @property
    def met(self) -> str:
        """Whether the goal is met; a dash where there is none."""
        if self.most is not None:
            return "met" if self.value <= self.most else "NOT met"
        if self.least is not None:
            return "met" if self.value >= self.least else "NOT met"
        return "-"


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help shows a benchmark's own words as they stand."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as lines: what, median, unit, goal, met or not."""
    width = max(len(figure.what) for figure in figures)
    lines = [f"{'':{width}} {'median':>10} {'':9} {'goal':>17} "]
    lines += [
        f"{one.what:{width}} {number(one.value):>10} {one.unit:9} {one.goal:>17}  {one.met}"
        for one in figures
    ]
    return "\n".join(lines)


def number(value: float) -> str:
    """Return a value in four figures, or whole and grouped by thousands."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
