"""``spbench compare``: two runs side by side."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from spbench.cli.error_reporting import print_to_stderr
from spbench.cli.records.gate_options import (
    CompareFailOnOption,
    FailOn,
    MaxUnjudgedOption,
    build_policy,
)
from spbench.cli.request import HomeOption
from spbench.cli.value_completions import complete_side
from spbench.errors import NothingSelected, UsageError

TEXT = "text"
CSV = "csv"
MARKDOWN = {"markdown": "md"}
"""Another name of a format."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(compare)


def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="Id of a run or an end of it, last or last~1; a baseline; or a file of either",
            metavar="A",
            autocompletion=complete_side,
        ),
    ] = "last~1",
    b: Annotated[
        str,
        typer.Argument(help="Run to compare with it", metavar="B", autocompletion=complete_side),
    ] = "last",
    home: HomeOption = None,
    format_: Annotated[
        str, typer.Option("--format", help="text, csv, md or json", metavar="FORMAT")
    ] = TEXT,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="Show only rows with this outcome: worse, better, same, broken or 'not judged'",
            metavar="OUTCOME",
        ),
    ] = None,
    all_metrics: Annotated[
        bool, typer.Option("--all", help="Show every metric, not only the time")
    ] = False,
    fail_on: CompareFailOnOption = None,
    max_unjudged: MaxUnjudgedOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Compare even if machines, versions or parameters differ"),
    ] = False,
) -> None:
    """Compare the times of two runs, case by case."""
    from spbench.cli.records.recorded import load_side
    from spbench.cli.text_layout import output_width
    from spbench.record.runs.folder import find_home
    from spbench.report.comparison.notes import comparison_summary
    from spbench.report.comparison.text import comparison_lines
    from spbench.report.export import export_comparison
    from spbench.report.gate.baseline_gate import compare_with_past

    policy = build_policy(fail_on or FailOn.NEVER, max_unjudged)
    root = find_home(home, os.environ)
    comparison = compare_with_past(root, load_side(root, a), load_side(root, b), force=force)
    shown = comparison if only is None else comparison.select_rows(_check_outcome(only))
    if only is not None and not shown.cases:
        print_to_stderr(f"spbench: no case is {only}; leave out --only to see all")
    if format_ == TEXT:
        width = output_width()
        for line in comparison_lines(comparison, width, shown=shown, all_metrics=all_metrics):
            print(line)
    else:
        print(export_comparison(shown, MARKDOWN.get(format_, format_), comparison), end="")
    if format_ == CSV:
        print_to_stderr(f"spbench: {comparison_summary(comparison)}")
    for reason in policy.explain_failures_to_users(comparison):
        print_to_stderr(f"spbench: error: {reason}")
    if not comparison.cases and not policy.outcomes:
        ids = f"{comparison.a.id} and {comparison.b.id}"
        raise NothingSelected(f"runs {ids} have no case in common; see spbench results show")
    if code := policy.exit_code(comparison):
        raise typer.Exit(code)


def _check_outcome(outcome: str) -> str:
    from spbench.report.comparison.model import ONLY_WORDS

    if outcome not in ONLY_WORDS:
        raise UsageError(f"--only {outcome}: unknown outcome; choose from {', '.join(ONLY_WORDS)}")
    return outcome
