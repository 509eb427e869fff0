"""The options that hold a run against a baseline at its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.completing import complete_baseline
from spbench.cli.records.compare import FailOn
from spbench.errors import UsageError

if TYPE_CHECKING:
    from spbench.report.judged import Against

BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        help="Hold the run against a baseline at its end.",
        metavar="NAME",
        autocompletion=complete_baseline,
    ),
]
FailOnOption = Annotated[
    FailOn | None,
    typer.Option("--fail-on", help="Exit 1 where a time is worse than the baseline's (default)."),
]


def against(home: Path | None, name: str | None, fail_on: FailOn | None) -> Against | None:
    """Return the baseline that was asked for; None: none was.

    Raises:
        UsageError: There is none of that name, or it cannot be read.
    """
    from spbench.record.runs.folder import home_of
    from spbench.report.baselines.files import load_baseline, path_of
    from spbench.report.baselines.making import as_run
    from spbench.report.judged import Against

    if name is None:
        if fail_on is not None:
            raise UsageError("--fail-on says what of a baseline fails the run; add --baseline NAME")
        return None
    root = home_of(home, os.environ)
    found = as_run(load_baseline(root, name), path_of(root, name))
    return Against(root, found, (fail_on or FailOn.WORSE).outcomes)
