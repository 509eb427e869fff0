"""``spbench results note`` and ``tag``: what somebody writes of a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import HomeOption, RunArgument

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder


def register(group: typer.Typer) -> None:
    """Add the commands of this module."""
    group.command()(note)
    group.command()(tag)


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

    folder = _folder(run, home)
    known = read_note(folder)
    if text is not None:
        told = parse_note(" ".join(text))
        known = change_tags(replace(told, tags=known.tags), told.tags)
        write_note(folder, known)
    print(known)


def tag(
    run: RunArgument,
    tags: Annotated[list[str], typer.Argument(help="Tags of the run", metavar="TAG")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove these tags")] = False,
    home: HomeOption = None,
) -> None:
    """Add tags to a run, for `spbench results list tag:NAME`."""
    from spbench.record.runs.notes import change_tags, check_tag, read_note, write_note

    folder = _folder(run, home)
    known = read_note(folder)
    asked = [check_tag(one) for one in tags]
    known = change_tags(known, () if remove else asked, asked if remove else ())
    write_note(folder, known)
    print(known)


def _folder(run: str, home: HomeOption) -> RunFolder:
    from spbench.record.runs.folder import find_home, find_run

    return find_run(find_home(home, os.environ), run)
