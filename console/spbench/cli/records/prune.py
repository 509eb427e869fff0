"""``spbench results prune``: remove old runs, after saying which."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import HomeOption
from spbench.errors import UsageError
from spbench_core.quantities import format_quantity

if TYPE_CHECKING:
    from spbench.record.runs.prune import OldRun


def register(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(prune)


def prune(
    keep: Annotated[
        int | None, typer.Option("--keep", help="Keep the newest N runs", min=0, metavar="N")
    ] = None,
    older: Annotated[
        str | None,
        typer.Option(
            "--older", help="Remove only older runs, such as 12h, 30d or 4w", metavar="AGE"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing")] = False,
    home: HomeOption = None,
) -> None:
    """Remove old runs that are not running and have no baseline."""
    from spbench.record.runs.folder import find_home
    from spbench.record.runs.history import list_summaries
    from spbench.record.runs.prune import find_old_runs, parse_age

    if keep is None and older is None:
        raise UsageError("prune: say what stays, with --keep N, --older 30d or both")
    root = find_home(home, os.environ)
    age = 0.0 if older is None else parse_age(older)
    found = find_old_runs(root, list_summaries(root), keep or 0, age, time.time())
    _tell(found)
    if found and (yes or _agreed()):
        _remove(root, found)


def _tell(found: Sequence[OldRun]) -> None:
    from spbench.record.number_formatting import strip_controls

    for old in found:
        print(strip_controls(f"{old.summary.id:<46} {old.bytes:>14,} bytes  {old.summary.verdict}"))
    total = sum(old.bytes for old in found)
    print(f"{format_quantity(len(found), 'run')}, {total:,} bytes" if found else "no run goes")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("prune: nothing was removed, since nobody can be asked here; add --yes")
    return typer.confirm("Remove them?")


def _remove(root: Path, found: Sequence[OldRun]) -> None:
    from spbench.record.runs.history import list_summaries
    from spbench.record.runs.prune import remove_run

    removed = [remove_run(root, old.summary.folder) for old in found]
    print(f"removed {format_quantity(sum(removed), 'run')}")
    list_summaries(root)  # the index forgets them
