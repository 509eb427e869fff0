"""``spbench results``: the runs of a home folder."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from spbench.cli.run import HomeOption

group = typer.Typer(help="The runs of a home folder.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(group, name="results")


@group.command("list")
def list_(home: HomeOption = None) -> None:
    """List the runs, the oldest first."""
    from spbench.record.folder import home_of, list_runs
    from spbench.report.build import timestamp

    for folder in list_runs(home_of(home, os.environ)):
        run = folder.read_json("run.json")
        verdict = run.get("verdict") or ("running" if folder.alive() else "unfinished")
        at = timestamp(folder.started())
        started = f"{at[:19]}Z" if at else "unknown"
        print(f"{folder.id:<46} {started:<20}  {verdict!s:<10} {run.get('suite', '?')}")


@group.command()
def show(
    run: Annotated[str, typer.Argument(help="A run's id, its beginning, or last.")] = "last",
    home: HomeOption = None,
) -> None:
    """Show a run's cases, as its events tell; also of a run whose console was killed."""
    from spbench.cli.lines import MOST_WIDTH, Lines, case_line
    from spbench.record.folder import find_run, home_of

    folder = find_run(home_of(home, os.environ), run)
    state = folder.replay()
    width = min(MOST_WIDTH, max(map(len, state.cases), default=0))
    for case in state.cases.values():
        print(case_line(case, width))
        if case.reason:
            print(f"        {case.reason}")
    ended = state.run is not None and state.run.finished is not None
    if ended:
        Lines(state, print, 0).finish(f"report: {folder.report}")
    else:
        end = "still running" if folder.alive() else "the console ended before the run did"
        print(f"unfinished: {end}; events: {folder.events}")
