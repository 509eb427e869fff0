"""The options that say what to run and where, for every command that has them."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spbench.cli.completing import complete_case, complete_launcher, complete_run
from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import Request

Command = Callable[..., None]


def known_suite(path: Path | None) -> Path | None:
    """Return a suite's path as it was typed, so that errors and runs name it; None is not given.

    Raises:
        UsageError: No suite of that name comes with spbench.
    """
    if path is None or ":" not in str(path):
        return path
    from spbench.suites.shipped import suite_path

    suite_path(path)
    return path


SUITE_HELP = "The suite's YAML file, or shipped:NAME."
SuiteArgument = Annotated[Path, typer.Argument(help=SUITE_HELP, callback=known_suite)]
OptionalSuiteArgument = Annotated[
    Path | None, typer.Argument(help=SUITE_HELP, callback=known_suite)
]
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
    typer.Option(
        "--launcher",
        help="mpirun_rsh, hydra, openmpi, srun or auto.",
        metavar="L",
        autocompletion=complete_launcher,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--console-address", help="This machine as ranks see it: names, IPv4.", metavar="LIST"
    ),
]
PortsOption = Annotated[
    str | None,
    typer.Option("--port-range", help="Ports that ranks can reach, as 5000-5010.", metavar="A-B"),
]
AssumeOption = Annotated[
    str | None,
    typer.Option(
        "--assume",
        help="Show launch lines for an MPI library that is not here, as mvapich2-2.3.7.",
        metavar="LIB-VERSION",
    ),
]
_LAUNCH_OPTIONS = {
    "hostfile": HostfileOption,
    "hosts": HostsOption,
    "exclude_hosts": ExcludeOption,
    "launcher": LauncherOption,
    "console_address": AddressOption,
    "port_range": PortsOption,
    "assume": AssumeOption,
}
"""The option of each field of `LaunchChoice`, in the order in which help shows them."""
KeywordOption = Annotated[
    str | None, typer.Option("-k", help="Cases to run: words with and, or, not.", metavar="EXPR")
]
CaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        help="A case to run, by its id or its name.",
        metavar="ID",
        autocompletion=complete_case,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value: a suite key or a parameter.", metavar="KEY=VALUE"),
]
CASE_OPTIONS = {"keyword": KeywordOption, "cases": CaseOption, "overrides": SetOption}
HomeOption = Annotated[
    Path | None, typer.Option("--home", help="Folder of the runs (SPBENCH_HOME, .spbench).")
]
RunArgument = Annotated[
    str,
    typer.Argument(help="A run's id, its beginning, last or last~1.", autocompletion=complete_run),
]
RunOrReportArgument = Annotated[
    str,
    typer.Argument(
        help="A run's id, its beginning, last or last~1; or a report's file.",
        autocompletion=complete_run,
    ),
]
OutOption = Annotated[
    str, typer.Option("--out", "-o", help="A file to write; - is stdout.", metavar="PATH|-")
]
JsonOption = Annotated[
    str | None, typer.Option("--json", help="Write the report; - is stdout.", metavar="PATH|-")
]
NoSamplesOption = Annotated[
    bool, typer.Option("--no-samples", help="Omit the samples from --json.")
]
QuietOption = Annotated[bool, typer.Option("-q", "--quiet", help="Only the verdict.")]
VerboseOption = Annotated[bool, typer.Option("-v", "--verbose", help="Ranks and commands.")]


def refuse_folder(option: str, target: str | Path | None) -> None:
    """Refuse a folder where an option takes a file to write, before any work is done.

    Raises:
        UsageError: It is one.
    """
    if target is not None and os.path.isdir(target or "."):  # Path's own raises on names too long
        raise UsageError(f"{option} {target}: cannot write to a folder; name a file in it")


def print_progress(line: str) -> None:
    """Print a line on stderr for somebody who waits; nothing once it is closed."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """The cases of a suite that are meant, and what is set in them; None is not given."""

    keyword: str | None = None
    cases: list[str] | None = None
    overrides: list[str] | None = None


ALL_CASES = CaseSelection()


def launch_options(*left_out: str) -> Callable[[Command], Command]:
    """Give a command the options of a launch, without those left out, as argument ``chosen``."""
    options = {name: kind for name, kind in _LAUNCH_OPTIONS.items() if name not in left_out}
    return options_as("chosen", LaunchChoice, options)


def case_options(command: Command) -> Command:
    """Give a command the options that select cases as its argument ``selected``."""
    return options_as("selected", CaseSelection, CASE_OPTIONS)(command)


def options_as(
    argument: str, value: Callable[..., Any], options: Mapping[str, Any]
) -> Callable[[Command], Command]:
    """Give a command options, by the fields of a value, as one argument.

    Typer reads the options from the signature: there they stand in the place of the argument.
    """

    def given_to(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            fields = {name: given.pop(name) for name in options}
            command(**given, **{argument: value(**fields)})

        signature = inspect.signature(command, eval_str=True)
        kinds: dict[str, inspect.Parameter] = {}
        for name, parameter in signature.parameters.items():
            if name != argument:
                kinds[name] = parameter
                continue
            for field, kind in options.items():
                kinds[field] = parameter.replace(name=field, annotation=kind, default=None)
        run.__annotations__ = {name: kind.annotation for name, kind in kinds.items()}
        run.__signature__ = signature.replace(parameters=list(kinds.values()))  # type: ignore[attr-defined]
        return run

    return given_to


def request_from(
    suite: Path,
    *,
    chosen: LaunchChoice,
    home: Path | None,
    selected: CaseSelection = ALL_CASES,
    argv: Sequence[str] = (),
) -> Request:
    """Return what a command line asks for, with this process's environment.

    Options that were not given are None. ``argv`` are the words as typed, for a command that keeps
    a record of them.
    """
    from spbench.engine.plan import Request
    from spbench.record.runs.folder import home_of

    return Request(
        suite=suite,
        home=home_of(home, os.environ),
        environ=dict(os.environ),
        argv=tuple(argv),
        overrides=tuple(selected.overrides or ()),
        keyword=selected.keyword,
        cases=tuple(selected.cases or ()),
        chosen=chosen,
    )
