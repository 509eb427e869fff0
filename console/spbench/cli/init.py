"""``spbench init``: a folder with the suites and hostfiles that come with spbench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(init)


def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder to write into", metavar="FOLDER", show_default=".")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace existing files")] = False,
) -> None:
    """Write the shipped suites and hostfiles into a folder."""
    from spbench.suites.shipped import copy_shipped
    from spbench_core.quantities import format_quantity

    copied = copy_shipped(folder, force=force)
    suites = folder / "suites"
    hostfiles = folder / "hostfiles"
    print(f"wrote {format_quantity(len(copied.written), 'file')} into {suites} and {hostfiles}")
    if copied.kept:
        names = ", ".join(str(path.relative_to(folder)) for path in copied.kept)
        print(f"kept as before, --force replaces: {names}")
    there = "" if folder == Path() else f", in {folder},"
    print(f"next: spbench run {suites / 'halo.yaml'}; or{there} spbench tui to change one")
