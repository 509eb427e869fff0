"""The views of a run: live tables on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan
    from spbench.record.state import RunState
    from spbench_core.events.fields import Event


class RunView(Protocol):
    """A live view of a run."""

    def __call__(self, event: Event) -> None:
        """Show an event that the state has taken in."""

    def finish(self, report: str) -> None:
        """Show the verdict."""

    def close(self) -> None:
        """Give the terminal back."""


def make_view(
    planned: RunPlan, state: RunState, headless: bool, on_stderr: bool, verbosity: int
) -> RunView:
    """Return live tables for a terminal, or lines for a pipe, CI, --headless or JSON on stdout."""
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
    from spbench.cli.tables import output_width

    stream = sys.stderr if on_stderr else sys.stdout
    return LineView(
        state, line_writer(stream), verbosity, output_width(stream), next_step, estimate
    )


def _next_step(home: Path) -> str:
    """Return what to do after the first run in a home; empty if there were runs before."""
    try:
        if any((home / "runs").iterdir()):
            return ""
    except OSError:
        pass
    from spbench.record.runs.folder import find_home

    program = "spbench" if shutil.which("spbench") else sys.argv[0]
    where = "" if home == find_home(None, os.environ) else f" --home {shlex.quote(str(home))}"
    return f"`{program} tui{where}` shows this run, its ranks and charts, and composes suites"


def line_writer(stream: TextIO) -> Callable[[str], None]:
    """Return a printer that falls silent when its reader has gone: the run matters more."""

    def write(line: str) -> None:
        nonlocal stream
        try:
            print(line, file=stream, flush=True)
        except OSError:
            stream = open(os.devnull, "w")  # noqa: SIM115 - it stays open until the end

    return write
