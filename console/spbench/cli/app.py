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
from spbench.cli import batch, doctor, init, networks, plan, profile, run, scale, suites
from spbench.cli.ending import ENV_COMPLETE, complain, ended
from spbench.cli.once import refuse_repeats
from spbench.cli.records import baseline, compare, gate, report, results
from spbench.cli.run_reports import report_usage
from spbench.errors import ExitCode

EPILOG = (
    "Exit codes: 0 passed; 1 a check, an expectation or a regression failed; 2 wrong usage or "
    "suite; 3 the environment lacks something; 4 a case ended in error or timeout; 5 nothing "
    "selected; 6 no case judged against a baseline; 124 --budget used up; 130, 143 interrupted."
)

app = typer.Typer(
    name="spbench",
    help="Benchmark a cluster: suites in YAML, MPI jobs out, checked per-rank numbers back.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
run.register(app)
scale.register(app)
batch.register(app)
suites.register(app)
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
refuse_repeats(app)

# The base of all of Typer's errors of usage, which Typer does not export by a name of its own.
_Usage = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])


def _show_version(asked: bool) -> None:
    if asked:
        print(f"spbench {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(
        False, "--version", help="Show the version and end.", callback=_show_version, is_eager=True
    ),
) -> None:
    """Take what stands before a command."""


def run_command_line(words: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on stderr, no traceback."""
    return ended(lambda: _run(words))


def _run(words: list[str] | None) -> int:
    if ENV_COMPLETE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    given = sys.argv[1:] if words is None else words
    try:
        return int(_narrowed(given)(args=words, prog_name="spbench", standalone_mode=False) or 0)
    except _Usage as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            complain(error.format_message())
            return ExitCode.USAGE
        text = " ".join(error.format_message().split()) or "see spbench --help"
        complain(f"spbench: error: {text}")
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
    narrowed.registered_commands, narrowed.registered_groups = named, []
    return narrowed


def _name(command: CommandInfo) -> str:
    """Return a command's name as Typer makes it."""
    assert command.callback is not None  # as of each that is registered
    return command.name or command.callback.__name__.replace("_", "-")
