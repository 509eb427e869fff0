"""The commands, and what becomes of their errors: one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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
    init,
    networks,
    suites,
)
from spbench.cli.error_reporting import ENV_COMPLETE, print_to_stderr, run_reporting_errors
from spbench.cli.help_pages import HelpGroup, usage_lines, usage_message
from spbench.cli.once import reject_repeats
from spbench.cli.planning import plan, profile
from spbench.cli.records import baseline, compare, gate, report, results
from spbench.cli.renamed import replace_old_names
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
init.register(app)
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

# The base of all of Typer's errors of usage, which Typer does not export by a name of its own.
_Usage = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])


def _show_version(asked: bool) -> None:
    if asked:
        print(f"spbench {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(
        False, "--version", help="Print the version", callback=_show_version, is_eager=True
    ),
) -> None:
    """Read the options before a command."""


def run_command_line(words: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on stderr, no traceback."""
    return run_reporting_errors(lambda: _run(words))


def _run(words: list[str] | None) -> int:
    if ENV_COMPLETE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    typed = sys.argv[1:] if words is None else words
    given = replace_old_names(typed, print_to_stderr)
    try:
        return int(_narrowed(given)(args=given, prog_name="spbench", standalone_mode=False) or 0)
    except _Usage as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print_to_stderr(error.format_message())
            return ExitCode.USAGE
        text = usage_message(error)
        print_to_stderr("\n".join([f"spbench: error: {text}", *usage_lines(error)]))
        report_usage(text, given)
        return ExitCode.USAGE
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except SystemExit as end:
        # Completion ends so with 0; Typer with 1 where the reader of stdout has gone, as `| head`
        # does, and then nothing is left to say to anyone.
        return ExitCode.PASSED if end.code in (0, 1, None) else ExitCode.USAGE


def _narrowed(words: Sequence[str]) -> typer.Typer:
    """Return the app with the command that the words begin with alone, for Typer builds them all.

    All of the app where they begin otherwise, or a shell asks for completions.
    """
    named = [each for each in app.registered_commands if [_name(each)] == [*words[:1]]]
    if ENV_COMPLETE in os.environ or not named:
        return app
    narrowed = copy(app)
    narrowed.registered_commands = named
    narrowed.registered_groups = []
    return narrowed


def _name(command: CommandInfo) -> str:
    """Return a command's name as Typer makes it."""
    assert command.callback is not None  # as of each that is registered
    return command.name or command.callback.__name__.replace("_", "-")
