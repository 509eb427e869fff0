"""Execution of a run with a view: live tables on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from spbench.cli.request import print_progress

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan
    from spbench.engine.run import EndedRun
    from spbench.errors import ExitCode
    from spbench.record.runs.folder import RunFolder
    from spbench.record.state import RunState
    from spbench.report.document import ReportDocument
    from spbench_core.events.fields import Event


class RunView(Protocol):
    """A live view of a run."""

    def __call__(self, event: Event) -> None:
        """Show an event after the state has applied it."""

    def finish(self, report: str) -> None:
        """Show the status of the run."""

    def close(self) -> None:
        """Release the terminal."""


def make_view(
    planned: RunPlan, state: RunState, *, headless: bool, on_stderr: bool, verbosity: int
) -> RunView:
    """Return live tables for a terminal, or lines for a pipe, CI or ``--headless``.

    Args:
        planned: The plan of the run.
        state: The state of the run, which changes with each event.
        headless: Whether to print lines on a terminal, too.
        on_stderr: Whether to print on stderr, because the report is written to stdout.
        verbosity: -1 for the status of the run only, 1 for details of ranks and cases.
    """
    from spbench.engine.estimate import estimate_plan

    home = planned.request.home
    estimate = estimate_plan(planned, home) if verbosity >= 0 else None
    next_step = _next_step(home)
    plain = headless or on_stderr or verbosity < 0 or os.environ.get("CI")
    if not plain and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        from spbench.cli.runs.live import LiveView

        return LiveView(state, Console(), verbosity, next_step, estimate)
    from spbench.cli.runs.lines import LineView
    from spbench.cli.text_layout import output_width

    stream = sys.stderr if on_stderr else sys.stdout
    return LineView(
        state, make_line_writer(stream), verbosity, output_width(stream), next_step, estimate
    )


def _next_step(home: Path) -> str:
    """Return a suggestion after the first run in a home folder; empty after others."""
    try:
        if any((home / "runs").iterdir()):
            return ""
    except OSError:
        pass
    from spbench.record.runs.folder import find_home

    program = "spbench" if shutil.which("spbench") else sys.argv[0]
    home_option = "" if home == find_home(None, os.environ) else f" --home {shlex.quote(str(home))}"
    return f"`{program} tui{home_option}` shows this run, its ranks and charts, and composes suites"


def make_line_writer(stream: TextIO) -> Callable[[str], None]:
    """Return a printer that ignores a closed stream, since the run matters more."""

    def write(line: str) -> None:
        nonlocal stream
        try:
            print(line, file=stream, flush=True)
        except OSError:
            stream = open(os.devnull, "w")  # noqa: SIM115 - stays open until the end

    return write


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A run that another command made.

    Attributes:
        state: The state of the run after its last event.
    """

    folder: RunFolder
    state: RunState
    report: ReportDocument
    exit_code: ExitCode


def execute_for_command(
    planned: RunPlan, *, quiet: bool, verbose: bool, to_stderr: bool, headless: bool = False
) -> CompletedRun:
    """Run the plan of another command, with the views of ``spbench run``.

    Raises:
        SpbenchError: The run could not be started.
    """
    from spbench.record.state import RunState

    state = RunState()
    ended = execute_plan(
        planned,
        state,
        headless=headless,
        on_stderr=to_stderr,
        verbosity=-1 if quiet else int(verbose),
    )
    return CompletedRun(ended.folder, state, ended.report, ended.exit_code)


def execute_plan(
    planned: RunPlan, state: RunState, *, headless: bool, on_stderr: bool, verbosity: int
) -> EndedRun:
    """Run a plan with the view of `make_view`, and return the ended run.

    Raises:
        SpbenchError: The run could not be started.
    """
    import asyncio

    from spbench.engine.run import Run

    view = make_view(planned, state, headless=headless, on_stderr=on_stderr, verbosity=verbosity)
    progress = print_progress if verbosity >= 0 else _ignore
    try:
        ended = asyncio.run(Run(planned, state, view, progress).execute())
        with suppress(OSError):  # the terminal may be gone
            view.finish(ended.folder.report_line)
    finally:
        with suppress(OSError):
            view.close()
    return ended


def _ignore(_: str) -> None:
    """Ignore progress, since ``--quiet`` only prints the status of the run."""
