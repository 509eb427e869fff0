"""``spbench compare``: two runs side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import HomeOption
from spbench.errors import NothingSelected

if TYPE_CHECKING:
    from spbench.report.compare import RunComparison

TEXT = "text"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(compare)


def compare(
    a: Annotated[str, typer.Argument(help="A run's id, its beginning, last or last~1.")],
    b: Annotated[str, typer.Argument(help="The run to compare with it.")],
    home: HomeOption = None,
    format_: Annotated[
        str, typer.Option("--format", help="text, csv, md or json.", metavar="FORMAT")
    ] = TEXT,
) -> None:
    """Compare two runs: per case and metric the ratio of medians, and which is better."""
    from spbench.cli.recorded import read_run
    from spbench.record.number_formatting import clean
    from spbench.record.runs.folder import find_run, home_of
    from spbench.report.compare import compare as compare_runs
    from spbench.report.export import export_comparison

    root = home_of(home, os.environ)
    comparison = compare_runs(*(read_run(find_run(root, name)) for name in (a, b)))
    if format_ == TEXT:
        for line in _lines(comparison):
            print(clean(line))
    else:
        print(export_comparison(comparison, format_), end="")
    if not comparison.cases:
        ids = f"{comparison.a.id} and {comparison.b.id}"
        raise NothingSelected(f"runs {ids} have no case in common; see spbench results show")


def _lines(comparison: RunComparison) -> Iterator[str]:
    from spbench.cli.tables import aligned
    from spbench.report.tables import (
        COMPARISON_COLUMNS,
        FIGURE_COLUMNS,
        comparison_remarks,
        comparison_rows,
        day_and_time,
    )

    runs = [("a", comparison.a), ("b", comparison.b)]
    yield from aligned(
        [
            (name, run.id, day_and_time(run.started), run.verdict, run.host or "")
            for name, run in runs
        ]
    )
    yield ""
    right = {at for at, name in enumerate(COMPARISON_COLUMNS) if name in FIGURE_COLUMNS}
    if comparison.cases:
        yield from aligned([COMPARISON_COLUMNS, *comparison_rows(comparison)], right)
    yield from comparison_remarks(comparison)
