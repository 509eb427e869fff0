"""``spbench tui``, ``replay`` and ``serve``; ``__main__`` adds the TUI itself."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol, Required, TypedDict, Unpack

import typer

from spbench.cli.help_pages import SingleUseCommand
from spbench.cli.request import HomeOption, OptionalSuiteArgument, RunArgument, launch_options
from spbench.errors import UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice

if TYPE_CHECKING:
    from pathlib import Path

    from spbench.record.runs.folder import RunFolder

LOOPBACK = "127.0.0.1"
MAX_SPEED = "max"
ReadonlyOption = Annotated[bool, typer.Option("--readonly", help="Start, cancel and write nothing")]


class TuiOptions(TypedDict, total=False):
    """The arguments of `spbench.tui.start.open_tui`, which `cli` may not import."""

    home: Required[Path]
    suite: Path | None
    recorded: RunFolder | None
    speed: float | None
    readonly: bool
    launch_choice: LaunchChoice


class OpenTui(Protocol):
    """A function that shows the TUI until it is closed, and returns its exit code."""

    def __call__(self, **options: Unpack[TuiOptions]) -> int: ...


class ServeTui(Protocol):
    """A function that serves ``spbench tui`` to browsers until a signal."""

    def __call__(
        self,
        args: Sequence[str],
        *,
        host: str,
        port: int,
        with_token: bool,
        print_address: Callable[[str], None],
    ) -> None: ...


def register(app: typer.Typer, open_tui: OpenTui, serve_tui: ServeTui) -> None:
    """Add the commands of this module."""
    app.command(cls=SingleUseCommand)(_tui(open_tui))
    app.command(cls=SingleUseCommand)(_replay(open_tui))
    app.command(cls=SingleUseCommand)(_serve(serve_tui))


def _tui(open_tui: OpenTui) -> Callable[..., None]:
    @launch_options()
    def tui(
        suite: OptionalSuiteArgument = None,
        demo: Annotated[bool, typer.Option("--demo", help="Play a recorded run")] = False,
        readonly: ReadonlyOption = False,
        launch_choice: LaunchChoice = DEFAULT_CHOICE,
        home: HomeOption = None,
    ) -> None:
        """Open screens to compose suites, watch runs and compare results."""
        from spbench.record.runs.folder import find_home

        _need_terminal("spbench run SUITE --headless")
        recorded = None
        if demo:
            from spbench.record.runs.playback import find_demo_run

            recorded = find_demo_run()
            suite = suite or recorded.path / "suite.yaml"
        code = open_tui(
            home=find_home(home, os.environ),
            suite=suite,
            recorded=recorded,
            readonly=readonly,
            launch_choice=launch_choice,
        )
        raise typer.Exit(code)

    return tui


def _replay(open_tui: OpenTui) -> Callable[..., None]:
    def replay(
        run: RunArgument = "last",
        speed: Annotated[
            str | None,
            typer.Option(
                "--speed",
                help="Speed, such as 0.5, 10 or max",
                metavar="FACTOR",
                show_default="1 on screens, max for lines",
            ),
        ] = None,
        headless: Annotated[
            bool, typer.Option("--headless", help="Print plain lines, also in a terminal")
        ] = False,
        home: HomeOption = None,
        verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print ranks, too")] = False,
    ) -> None:
        """Play a recorded run again, on screens or as lines."""
        from spbench.record.runs.folder import find_home, find_run

        root = find_home(home, os.environ)
        folder = find_run(root, run)
        if headless or not _in_terminal():
            from spbench.cli.runs.lines import replay_lines

            replay_lines(folder, parse_speed(speed or MAX_SPEED), print, int(verbose))
            return
        code = open_tui(home=root, recorded=folder, speed=parse_speed(speed or "1"), readonly=True)
        raise typer.Exit(code)

    return replay


def _serve(serve_tui: ServeTui) -> Callable[..., None]:
    @launch_options()
    def serve(
        suite: OptionalSuiteArgument = None,
        host: Annotated[
            str, typer.Option("--host", help="Address to listen on", metavar="ADDRESS")
        ] = LOOPBACK,
        port: Annotated[
            int,
            typer.Option("--port", help="Port; 0 takes a free one", metavar="N", min=0, max=65535),
        ] = 8000,
        no_token: Annotated[
            bool, typer.Option("--no-token", help="Accept connections without a token")
        ] = False,
        readonly: ReadonlyOption = False,
        launch_choice: LaunchChoice = DEFAULT_CHOICE,
        home: HomeOption = None,
    ) -> None:
        """Show the screens of `spbench tui` in a browser."""
        from spbench.record.runs.folder import find_home

        arguments = [] if suite is None else [str(suite)]
        if readonly:
            arguments.append("--readonly")
        arguments += ["--home", str(find_home(home, os.environ)), *launch_choice.to_args()]

        def print_address(address: str) -> None:
            print(f"{address}\nOpen it in a browser; Ctrl-C ends the server.", flush=True)

        serve_tui(
            arguments, host=host, port=port, with_token=not no_token, print_address=print_address
        )

    return serve


def parse_speed(text: str) -> float | None:
    """Return a speed: a number above 0, or ``max`` (None).

    Raises:
        UsageError: The text is neither.
    """
    if text == MAX_SPEED:
        return None
    if re.fullmatch(r"\d+(\.\d+)?x?", text) and (speed := float(text.rstrip("x"))) > 0:
        return speed
    raise UsageError(f"--speed {text}: write a number above 0 such as 0.5, 1 or 20, or max")


def _in_terminal() -> bool:
    if "TEXTUAL_DRIVER" in os.environ:  # a browser, in a TUI that `serve` started
        return True
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _need_terminal(instead: str) -> None:
    if not _in_terminal():
        raise UsageError(f"the console needs a terminal; without one use {instead}")
