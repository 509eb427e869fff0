"""The commands, and their errors: one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import cast

import typer
from typer.models import CommandInfo

from spbench import __version__
from spbench.cli import (
    batch,
    benchmarks,
    completion,
    doctor,
    networks,
    suites,
)
from spbench.cli.error_reporting import ENV_COMPLETE, print_to_stderr, run_reporting_errors
from spbench.cli.help_pages import HelpGroup, reject_repeats, usage_lines, usage_message
from spbench.cli.planning import plan, profile
from spbench.cli.records import baseline, compare, gate, report, results
from spbench.cli.runs import run, scale
from spbench.cli.runs.reports import report_usage
from spbench.errors import ExitCode

EPILOG = """\
Exit codes
0         all cases passed
1         a check, an expectation or a comparison failed
2         wrong command line or suite
3         a launcher, host, package or writable home is missing
4         a case ended in an error or timed out, or a file could not be written
5         no case or run is selected
6         no case could be compared with the baseline
124       the time of --budget is used up
130, 143  interrupted by Ctrl-C or SIGTERM"""

RENAMED: Mapping[str, Mapping[str, str]] = {
    "script": {"--out": "--output"},
    "submit": {"--out": "--output"},
    "profile": {"--out": "--output", "--ranks": "--np"},
    "plan": {"--out": "--output"},
    "doctor": {"--ranks": "--np"},
    "results show": {"--output": "--logs"},
}
"""New names of options by their old names, for each command."""

app = typer.Typer(
    name="spbench",
    cls=HelpGroup,
    help="Benchmark a cluster for deep learning: run suites of MPI jobs, check their results and "
    "compare their times.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
run.register(app)
scale.register(app)
batch.register(app)
suites.register(app)
benchmarks.register(app)
completion.register(app)
networks.register(app)
profile.register(app)
plan.register(app)
doctor.register(app)
results.register(app)
compare.register(app)
baseline.register(app)
gate.register(app)
report.register(app)
reject_repeats(app)

# The base class of Typer's usage errors, which Typer does not export.
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])


def _show_version(show: bool) -> None:
    if show:
        print(f"spbench {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(
        False, "--version", help="Print the version", callback=_show_version, is_eager=True
    ),
) -> None:
    """Read the options before a command."""


def run_command_line(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; print an error as one line on stderr."""
    return run_reporting_errors(lambda: _run(arguments))


def _run(arguments: list[str] | None) -> int:
    if ENV_COMPLETE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    typed_arguments = sys.argv[1:] if arguments is None else arguments
    renamed_arguments = replace_old_names(typed_arguments, print_to_stderr)
    narrow_app = _narrow_app(renamed_arguments)
    try:
        exit_code = narrow_app(args=renamed_arguments, prog_name="spbench", standalone_mode=False)
        return int(exit_code or 0)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print_to_stderr(error.format_message())
            return ExitCode.USAGE
        text = usage_message(error)
        print_to_stderr("\n".join([f"spbench: error: {text}", *usage_lines(error)]))
        report_usage(text, renamed_arguments)
        return ExitCode.USAGE
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except SystemExit as end:
        # Completion exits with 0. Typer exits with 1 if the reader of stdout is gone, as with
        # `| head`, and then no message can be printed.
        return ExitCode.PASSED if end.code in (0, 1, None) else ExitCode.USAGE


def _narrow_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the app with only the command of a command line, since Typer builds all.

    It is the complete app for an unknown command, and if a shell asks for completions.
    """
    matching = [
        command
        for command in app.registered_commands
        if [_derive_command_name(command)] == [*arguments[:1]]
    ]
    if ENV_COMPLETE in os.environ or not matching:
        return app
    small_app = copy(app)
    small_app.registered_commands = matching
    small_app.registered_groups = []
    return small_app


def _derive_command_name(command: CommandInfo) -> str:
    """Return the name that Typer derives for a command."""
    assert command.callback is not None  # registered commands have one
    return command.name or command.callback.__name__.replace("_", "-")


def replace_old_names(arguments: Sequence[str], warn: Callable[[str], None]) -> list[str]:
    """Return a command line with the new names of renamed options.

    Args:
        arguments: The arguments after ``spbench``.
        warn: Called once for each old name.
    """
    for command, names in RENAMED.items():
        length = len(command.split())
        if " ".join(arguments[:length]) == command:
            return [*arguments[:length], *_replace_options(arguments[length:], names, warn)]
    return list(arguments)


def _replace_options(
    arguments: Sequence[str], names: Mapping[str, str], warn: Callable[[str], None]
) -> list[str]:
    options = list(arguments)
    end = options.index("--") if "--" in options else len(options)
    warned = set()
    for index, argument in enumerate(options[:end]):
        name, equals, value = argument.partition("=")
        if name not in names:
            continue
        options[index] = f"{names[name]}{equals}{value}"
        if name not in warned:
            warn(f"warning: {name} is now {names[name]}")
            warned.add(name)
    return options
