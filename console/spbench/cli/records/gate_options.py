"""Options of comparisons that may fail a run, and of the baseline."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.value_completions import complete_baseline
from spbench.errors import UsageError

if TYPE_CHECKING:
    from spbench.report.gate.baseline_gate import BaselineGate, GatePolicy


class FailOn(StrEnum):
    """The outcomes of a case that end a command with exit 1."""

    WORSE = "worse"
    ANY = "any"
    NEVER = "never"

    @property
    def outcomes(self) -> frozenset[str]:
        """The outcomes of a case that fail the comparison."""
        from spbench.report.comparison.model import Outcome

        failing = {
            FailOn.WORSE: frozenset[str]({Outcome.WORSE}),
            FailOn.ANY: frozenset[str]({Outcome.WORSE, Outcome.BETTER}),
            FailOn.NEVER: frozenset[str](),
        }
        return failing[self]


BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        help="Compare the run with this baseline",
        metavar="NAME",
        autocompletion=complete_baseline,
    ),
]
_FAIL_ON_HELP = (
    "Exit with 1 if a case is worse or broken (worse), or also if it is better (any); "
    "exit with 6 if no case can be judged; or ignore the comparison (never)"
)
FailOnOption = Annotated[
    FailOn | None,
    typer.Option(
        "--fail-on",
        help=_FAIL_ON_HELP,
        metavar="WHEN",
        show_default="worse with --baseline, else never",
    ),
]
ReportFailOnOption = Annotated[
    FailOn | None,
    typer.Option(
        "--fail-on",
        help="Show the run as failed if a case is worse or broken (worse), or also if it is better "
        "(any); or ignore the comparison (never)",
        metavar="WHEN",
        show_default="worse with --baseline, else never",
    ),
]
CompareFailOnOption = Annotated[
    FailOn | None,
    typer.Option("--fail-on", help=_FAIL_ON_HELP, metavar="WHEN", show_default="never"),
]
MaxUnjudgedOption = Annotated[
    int | None,
    typer.Option(
        "--max-unjudged",
        help="Cases that may stay unjudged, and maybe slower, without failing",
        metavar="N",
        show_default="0",
        min=0,
    ),
]


def build_policy(fail_on: FailOn, max_unjudged: int | None) -> GatePolicy:
    """Return the policy of these options.

    Raises:
        UsageError: ``--max-unjudged`` is given, but no outcome fails.
    """
    from spbench.report.gate.baseline_gate import GatePolicy

    if fail_on is FailOn.NEVER and max_unjudged is not None:
        raise UsageError("--max-unjudged limits what fails; add --fail-on worse or any")
    return GatePolicy(fail_on.outcomes, max_unjudged or 0)


def load_gate(
    home: Path | None, name: str | None, fail_on: FailOn | None, max_unjudged: int | None
) -> BaselineGate | None:
    """Return the gate of a baseline; None without ``--baseline``.

    Raises:
        UsageError: The baseline does not exist or cannot be read, or an option needs one.
    """
    from spbench.record.runs.folder import find_home
    from spbench.report.baselines.creation import make_baseline_run
    from spbench.report.baselines.files import baseline_path, load_baseline
    from spbench.report.gate.baseline_gate import BaselineGate

    if name is None:
        for option, value in (("--fail-on", fail_on), ("--max-unjudged", max_unjudged)):
            if value is not None:
                raise UsageError(f"{option} needs a baseline to compare with; add --baseline NAME")
        return None
    root = find_home(home, os.environ)
    baseline = make_baseline_run(load_baseline(root, name), baseline_path(root, name))
    return BaselineGate(root, baseline, build_policy(fail_on or FailOn.WORSE, max_unjudged))
