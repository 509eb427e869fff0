"""``spbench tui``, ``replay`` and ``serve``; ``__main__`` adds the TUI itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import typer

from spbench.cli.help_pages import SingleUseCommand
from spbench.cli.request import HomeOption, OptionalSuiteArgument, RunArgument, launch_options
from spbench.cli.tui_opening import DEFAULT_RUN, OpenTui, open_replay, open_suites
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice

LOOPBACK = "127.0.0.1"
ReadonlyOption = Annotated[bool, typer.Option("--readonly", help="Start, cancel and write nothing")]


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
        code = open_suites(
            open_tui,
            suite=suite,
            demo=demo,
            readonly=readonly,
            launch_choice=launch_choice,
            home=home,
        )
        raise typer.Exit(code)

    return tui


def _replay(open_tui: OpenTui) -> Callable[..., None]:
    def replay(
        run: RunArgument = DEFAULT_RUN,
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
        code = open_replay(
            open_tui, run=run, speed=speed, headless=headless, home=home, verbose=verbose
        )
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
