"""``spbench doctor``: what this machine has, what it lacks, and the command that mends it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from spbench.errors import ExitCode

WIDTH = 12


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(doctor)


def doctor(
    python: Annotated[
        str | None, typer.Option("--python", help="Interpreter of the ranks.", metavar="PATH")
    ] = None,
    ranks: Annotated[
        int, typer.Option("--ranks", help="Ranks that you mean to run here.", min=1)
    ] = 4,
) -> None:
    """Name launchers, MPI library, torch, devices and cores, and what is missing."""
    from spbench.launch.doctor import examine

    findings = examine(python, ranks, os.environ)
    for finding in findings:
        glyph = {"ok": "✓", "note": "!", "missing": "✗"}[finding.status]
        print(f"{glyph} {finding.status:<8} {finding.subject:<{WIDTH}} {finding.text}")
        if finding.mend:
            print(f"  {'':<8} {'':<{WIDTH}} mend: {finding.mend}")
    if any(finding.status == "missing" for finding in findings):
        raise typer.Exit(ExitCode.MISSING)
