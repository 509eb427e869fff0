"""Options for suites, hosts and runs, for every command that has them."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spbench.cli.value_completions import (
    complete_case,
    complete_launcher,
    complete_run,
    complete_side,
)
from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import Request

Command = Callable[..., None]
STDOUT = "-"
"""The value of an option for an output file that means stdout."""


def check_suite(path: Path | None) -> Path | None:
    """Check a suite's path and return it as typed; None if it is missing.

    Raises:
        UsageError: spbench has no shipped suite of that name.
    """
    if path is None or ":" not in str(path):
        return path
    from spbench.suites.shipped import require_suite_file

    require_suite_file(path)
    return path


def check_system(name: str | None) -> str | None:
    """Check the name of a system and return it; None if it is missing.

    Raises:
        UsageError: The name is invalid.
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
        metavar="LIB[-VERSION]",
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
"""The options of the fields of `LaunchChoice`, in the order of the help."""
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

FROM_SUFFIX = "; if not given, the suffix of --output decides"
"""The end of the help of ``--format``."""


def choose_format(
    requested: str | None, output: str, suffixes: Mapping[str, str], default: str
) -> str:
    """Return the requested format, the format of the file's suffix, or the default.

    Args:
        requested: The value of ``--format``; None if it was not given.
        output: The file to write, or ``-`` for stdout.
        suffixes: The format of each known suffix, such as ``.html``.
        default: The format for stdout and for unknown suffixes.
    """
    if requested is not None:
        return requested
    return suffixes.get(PurePath(output).suffix.lower(), default)


def reject_folder(option: str, target: str | Path | None) -> None:
    """Reject a folder as the value of an option for an output file.

    Raises:
        UsageError: The path is a folder.
    """
    if target is not None and os.path.isdir(target or "."):  # Path.is_dir raises on long names
        raise UsageError(f"{option} {target}: cannot write to a folder; name a file in it")


def write_output(text: str, target: str) -> None:
    """Write text to a file, or to stdout for ``-``.

    Raises:
        SpbenchError: The file cannot be written.
    """
    from spbench.record.runs.files import write_file

    if target == STDOUT:
        sys.stdout.write(text)
        # Lines on stderr that follow must not overtake the text.
        sys.stdout.flush()
    else:
        write_file(Path(target), text)


def print_progress(line: str) -> None:
    """Print a progress line on stderr, unless it is closed."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def print_warning(message: str) -> None:
    """Print a warning on stderr, unless it is closed."""
    print_progress(f"spbench: warning: {message}")


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """The selected cases of a suite and their overrides; None if not given."""

    keyword: str | None = None
    cases: list[str] | None = None
    overrides: list[str] | None = None


ALL_CASES = CaseSelection()


def launch_options(*left_out: str) -> Callable[[Command], Command]:
    """Return a decorator that adds launch options to a command as ``launch_choice``."""
    options = {name: hint for name, hint in _LAUNCH_OPTIONS.items() if name not in left_out}
    return group_options("launch_choice", LaunchChoice, options)


def case_options(command: Command) -> Command:
    """Add the options that select cases to a command as ``case_selection``."""
    return group_options("case_selection", CaseSelection, CASE_OPTIONS)(command)


def group_options(
    argument: str, make_argument: Callable[..., Any], options: Mapping[str, Any]
) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command as one argument.

    Typer reads the options from the signature, in which they replace the argument.
    """

    def add_options(command: Command) -> Command:
        @wraps(command)
        def run(**keywords: Any) -> None:
            fields = {name: keywords.pop(name) for name in options}
            command(**keywords, **{argument: make_argument(**fields)})

        signature = inspect.signature(command, eval_str=True)
        parameters: dict[str, inspect.Parameter] = {}
        for name, parameter in signature.parameters.items():
            if name != argument:
                parameters[name] = parameter
                continue
            for field, annotation in options.items():
                parameters[field] = parameter.replace(
                    name=field, annotation=annotation, default=None
                )
        run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        run.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
        return run

    return add_options


def build_request(
    suite: Path,
    *,
    launch_choice: LaunchChoice,
    home: Path | None,
    case_selection: CaseSelection = ALL_CASES,
    system: str | None = None,
    argv: Sequence[str] = (),
) -> Request:
    """Return the request of a command line, with this process's environment.

    Options that were not given are None. ``argv`` is the command line as typed, for commands that
    record it.
    """
    from spbench.engine.plan import Request
    from spbench.record.runs.folder import find_home

    return Request(
        suite=suite,
        home=find_home(home, os.environ),
        environ=dict(os.environ),
        argv=tuple(argv),
        overrides=tuple(case_selection.overrides or ()),
        keyword=case_selection.keyword,
        cases=tuple(case_selection.cases or ()),
        launch_choice=launch_choice,
        system=system,
    )
