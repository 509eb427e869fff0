"""The options that say what to run and where, for every command that has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.errors import UsageError

if TYPE_CHECKING:
    from spbench.engine.plan import Request

HostfileOption = Annotated[
    Path | None, typer.Option("--hostfile", help="Hosts, in any launcher's dialect.")
]
HostsOption = Annotated[
    str | None, typer.Option("--hosts", help="Hosts, as node[01-08]:4,other.", metavar="LIST")
]
ExcludeOption = Annotated[
    str | None, typer.Option("--exclude-hosts", help="Hosts to leave out.", metavar="LIST")
]
LauncherOption = Annotated[
    str | None,
    typer.Option("--launcher", help="mpirun_rsh, hydra, openmpi, srun or auto.", metavar="L"),
]
KeywordOption = Annotated[
    str | None, typer.Option("-k", help="Cases to run: words with and, or, not.", metavar="EXPR")
]
CaseOption = Annotated[
    list[str] | None,
    typer.Option("--case", help="A case to run, by its id or its name.", metavar="ID"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value: a suite key or a parameter.", metavar="KEY=VALUE"),
]
HomeOption = Annotated[
    Path | None, typer.Option("--home", help="Folder of the runs (SPBENCH_HOME, .spbench).")
]


def refuse_folder(option: str, target: str | Path | None) -> None:
    """Refuse a folder where an option takes a file to write, before any work is done.

    Raises:
        UsageError: It is one.
    """
    if target is not None and os.path.isdir(target or "."):  # Path's own raises on names too long
        raise UsageError(f"{option} {target}: cannot write to a folder; name a file in it")


def request_from(
    suite: Path,
    *,
    hostfile: Path | None,
    hosts: str | None,
    exclude_hosts: str | None,
    launcher: str | None,
    keyword: str | None,
    cases: Sequence[str] | None,
    overrides: Sequence[str] | None,
    home: Path | None,
    inject: str | None = None,
    budget: float | None = None,
    argv: Sequence[str] = (),
) -> Request:
    """Return what a command line asks for, with this process's environment.

    Options that were not given are None. ``budget`` is in seconds; ``argv`` are the words as typed,
    for a command that keeps a record of them.
    """
    from spbench.engine.plan import Request
    from spbench.record.folder import home_of

    return Request(
        suite=suite,
        home=home_of(home, os.environ),
        environ=dict(os.environ),
        argv=tuple(argv),
        overrides=tuple(overrides or ()),
        keyword=keyword,
        cases=tuple(cases or ()),
        inject=inject,
        hostfile=hostfile,
        hosts=hosts,
        exclude_hosts=exclude_hosts,
        launcher=launcher,
        budget=budget,
    )
