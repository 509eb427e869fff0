"""The options that say what to run and where, for every command that has them."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spbench.cli.completing import complete_case, complete_launcher, complete_run, complete_side
from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import Request

Command = Callable[..., None]


def check_suite(path: Path | None) -> Path | None:
    """Return a suite's path as it was typed, so that errors and runs name it; None is not given.

    Raises:
        UsageError: No suite of that name comes with spbench.
    """
    if path is None or ":" not in str(path):
        return path
    from spbench.suites.shipped import find_suite_file

    find_suite_file(path)
    return path


def check_system(name: str | None) -> str | None:
    """Return the name of a system as typed; None is not given.

    Raises:
        UsageError: No suite can have a reference for such a name.
    """
    if name is None:
        return None
    from spbench.suites.case import NAME_PATTERN

    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(
            f"--system {name!r}: use letters, digits and . _ - with a letter or digit first"
        )
    return name


SUITE_HELP = "YAML file of a suite, or shipped:NAME"
SuiteArgument = Annotated[
    Path, typer.Argument(help=SUITE_HELP, metavar="SUITE", callback=check_suite)
]
OptionalSuiteArgument = Annotated[
    Path | None, typer.Argument(help=SUITE_HELP, metavar="SUITE", callback=check_suite)
]
HostfileOption = Annotated[
    Path | None,
    typer.Option(
        "--hostfile", help="File with hosts, in the format of any launcher", metavar="FILE"
    ),
]
HostsOption = Annotated[
    str | None, typer.Option("--hosts", help="Hosts, such as node[01-08]:4,other", metavar="LIST")
]
ExcludeOption = Annotated[
    str | None, typer.Option("--exclude-hosts", help="Hosts to leave out", metavar="LIST")
]
LauncherOption = Annotated[
    str | None,
    typer.Option(
        "--launcher",
        help="mpirun_rsh, hydra, openmpi, srun or auto",
        metavar="NAME",
        show_default="auto",
        autocompletion=complete_launcher,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--console-address",
        help="Names or IPv4 addresses at which ranks reach this machine",
        metavar="LIST",
    ),
]
PortsOption = Annotated[
    str | None,
    typer.Option(
        "--port-range", help="Ports that ranks can reach, such as 5000-5010", metavar="FIRST-LAST"
    ),
]
AssumeOption = Annotated[
    str | None,
    typer.Option(
        "--assume",
        help="Show launch commands for a library that is not installed, such as mvapich2-2.3.7",
        metavar="LIB-VERSION",
    ),
]
OversubscribeOption = Annotated[
    bool | None,
    typer.Option(
        "--oversubscribe",
        help="Allow more ranks and memory than this machine has",
        show_default=False,
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
    "oversubscribe": OversubscribeOption,
}
"""The option of each field of `LaunchChoice`, in the order in which help shows them."""
KeywordOption = Annotated[
    str | None, typer.Option("-k", help="Select cases by words with and, or, not", metavar="EXPR")
]
CaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        help="Select a case by its id or name (repeatable)",
        metavar="ID",
        autocompletion=complete_case,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set a suite key or a parameter (repeatable)", metavar="KEY=VALUE"),
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        help="Use the references of this system",
        metavar="NAME",
        show_default="name in the site file or host",
        callback=check_system,
    ),
]
CASE_OPTIONS = {"keyword": KeywordOption, "cases": CaseOption, "overrides": SetOption}
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="Folder of runs and baselines",
        metavar="FOLDER",
        show_default="$SPBENCH_HOME or .spbench",
    ),
]
RunArgument = Annotated[
    str,
    typer.Argument(
        help="Id of a run or an end of it, last or last~1",
        metavar="RUN",
        autocompletion=complete_run,
    ),
]
RunOrReportArgument = Annotated[
    str,
    typer.Argument(
        help="Id of a run or an end of it, last or last~1; or a report file",
        metavar="RUN",
        autocompletion=complete_run,
    ),
]
SideArgument = Annotated[
    str,
    typer.Argument(
        help="Id of a run or an end of it, last or last~1; a baseline; or a file of either",
        metavar="RUN",
        autocompletion=complete_side,
    ),
]
OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="File to write; - is stdout", metavar="FILE")
]
JsonOption = Annotated[
    str | None,
    typer.Option("--json", help="Write the report as JSON; - is stdout", metavar="FILE"),
]
NoSamplesOption = Annotated[
    bool, typer.Option("--no-samples", help="Leave the samples out of --json")
]
QuietOption = Annotated[bool, typer.Option("-q", "--quiet", help="Print only the result")]
VerboseOption = Annotated[
    bool, typer.Option("-v", "--verbose", help="Also print ranks and launch commands")
]


def reject_folder(option: str, target: str | Path | None) -> None:
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


def print_warning(message: str) -> None:
    """Print a warning on stderr; nothing once it is closed."""
    print_progress(f"spbench: warning: {message}")


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
    return group_options("chosen", LaunchChoice, options)


def case_options(command: Command) -> Command:
    """Give a command the options that select cases as its argument ``selected``."""
    return group_options("selected", CaseSelection, CASE_OPTIONS)(command)


def group_options(
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


def build_request(
    suite: Path,
    *,
    chosen: LaunchChoice,
    home: Path | None,
    selected: CaseSelection = ALL_CASES,
    system: str | None = None,
    argv: Sequence[str] = (),
) -> Request:
    """Return what a command line asks for, with this process's environment.

    Options that were not given are None. ``argv`` are the words as typed, for a command that keeps
    a record of them.
    """
    from spbench.engine.plan import Request
    from spbench.record.runs.folder import find_home

    return Request(
        suite=suite,
        home=find_home(home, os.environ),
        environ=dict(os.environ),
        argv=tuple(argv),
        overrides=tuple(selected.overrides or ()),
        keyword=selected.keyword,
        cases=tuple(selected.cases or ()),
        launch_choice=chosen,
        system=system,
    )
