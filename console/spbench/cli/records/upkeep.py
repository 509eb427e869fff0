"""``spbench results note``, ``tag`` and ``prune``: annotate or remove runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import HomeOption, RunArgument
from spbench.errors import UsageError
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder
    from spbench.record.runs.prune import OldRun


def register(group: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (note, tag, prune):
        group.command()(command)


def note(
    run: RunArgument,
    text: Annotated[
        list[str] | None, typer.Argument(help="Note; '' removes it", metavar="TEXT")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Replace the note of a run, or show it."""
    from dataclasses import replace

    from spbench.record.runs.notes import change_tags, parse_note, read_note, write_note

    folder = _find_folder(run, home)
    current = read_note(folder)
    if text is not None:
        parsed = parse_note(" ".join(text))
        current = change_tags(replace(parsed, tags=current.tags), parsed.tags)
        write_note(folder, current)
    print(current)


def tag(
    run: RunArgument,
    tags: Annotated[list[str], typer.Argument(help="Tags of the run", metavar="TAG")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove these tags")] = False,
    home: HomeOption = None,
) -> None:
    """Add tags to a run, for `spbench results list tag:NAME`."""
    from spbench.record.runs.notes import change_tags, check_tag, read_note, write_note

    folder = _find_folder(run, home)
    current = read_note(folder)
    checked = [check_tag(name) for name in tags]
    current = change_tags(current, () if remove else checked, checked if remove else ())
    write_note(folder, current)
    print(current)


def _find_folder(run: str, home: HomeOption) -> RunFolder:
    from spbench.record.runs.folder import find_home, find_run

    return find_run(find_home(home, os.environ), run)


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
    old_runs = find_old_runs(root, list_summaries(root), keep or 0, age, time.time())
    _print_runs(old_runs)
    if old_runs and (yes or _confirm()):
        _remove_runs(root, old_runs)


def _print_runs(old_runs: Sequence[OldRun]) -> None:
    from spbench.record.number_formatting import replace_controls

    for run in old_runs:
        print(
            replace_controls(
                f"{run.summary.id:<46} {run.size_bytes:>14,} bytes  {run.summary.status}"
            )
        )
    total_bytes = sum(run.size_bytes for run in old_runs)
    print(
        f"{format_quantity(len(old_runs), 'run')}, {total_bytes:,} bytes"
        if old_runs
        else "no run goes"
    )


def _confirm() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("prune: nothing was removed, since nobody can be asked here; add --yes")
    return typer.confirm("Remove them?")


def _remove_runs(root: Path, old_runs: Sequence[OldRun]) -> None:
    from spbench.record.runs.history import list_summaries
    from spbench.record.runs.prune import remove_run

    removed = [remove_run(root, run.summary.folder) for run in old_runs]
    print(f"removed {format_quantity(sum(removed), 'run')}")
    list_summaries(root)  # removes them from the index
