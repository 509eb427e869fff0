"""``spbench compare``: two runs side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.completing import complete_side
from spbench.cli.ending import complain
from spbench.cli.records.gate_options import FailOn, FailOnOption, MaxUnjudgedOption, policy_of
from spbench.cli.request import HomeOption
from spbench.errors import NothingSelected, UsageError

if TYPE_CHECKING:
    from spbench.report.run_comparison import Outcome, RunComparison

TEXT, CSV = "text", "csv"
MARKDOWN = {"markdown": "md"}
"""Another name of a format."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(compare)


def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="A run's id, its beginning, last or last~1; a baseline; or the file of either.",
            autocompletion=complete_side,
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(help="The run that is judged against it.", autocompletion=complete_side),
    ],
    home: HomeOption = None,
    format_: Annotated[
        str, typer.Option("--format", help="text, csv, md or json.", metavar="FORMAT")
    ] = TEXT,
    only: Annotated[
        str | None, typer.Option("--only", help="Only these rows: worse, better, same, ...")
    ] = None,
    fail_on: FailOnOption = None,
    max_unjudged: MaxUnjudgedOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Compare although machines, versions or parameters differ."),
    ] = False,
) -> None:
    """Compare two runs over their launches: ratios, their intervals, and a verdict each."""
    from spbench.cli.records.recorded import side_of
    from spbench.record.number_formatting import clean
    from spbench.record.runs.folder import home_of
    from spbench.report.baseline_gate import comparison_of
    from spbench.report.export import export_comparison

    policy = policy_of(fail_on or FailOn.NEVER, max_unjudged)
    root = home_of(home, os.environ)
    comparison = comparison_of(root, side_of(root, a), side_of(root, b), force=force)
    shown = comparison if only is None else comparison.with_only(_outcome(only))
    if format_ == TEXT:
        for line in _lines(shown):
            print(clean(line))
    else:
        print(export_comparison(shown, MARKDOWN.get(format_, format_)), end="")
    if format_ == CSV:
        complain(f"spbench: {comparison.tally}")
    for why in policy.failures(comparison):
        complain(f"spbench: error: {why}")
    if not comparison.cases and not policy.outcomes:
        ids = f"{comparison.a.id} and {comparison.b.id}"
        raise NothingSelected(f"runs {ids} have no case in common; see spbench results show")
    if code := policy.exit_code(comparison):
        raise typer.Exit(code)


def _outcome(word: str) -> Outcome:
    from spbench.report.run_comparison import OUTCOMES

    for outcome in OUTCOMES:
        if outcome == word:
            return outcome
    raise UsageError(f"--only {word}: there are {', '.join(OUTCOMES)}")


def _lines(comparison: RunComparison) -> Iterator[str]:
    from spbench.cli.tables import aligned
    from spbench.report.tables import (
        COMPARISON_COLUMNS,
        FIGURE_COLUMNS,
        comparison_remarks,
        comparison_rows,
    )
    from spbench.report.times import day_and_time

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
