"""The ``spbench`` command: the only module that imports command line and TUI."""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from spbench import __version__
from spbench.cli.opening_line import COMMANDS, OpeningLine

if TYPE_CHECKING:
    from spbench.cli.tui_opening import TuiOptions

_ENV_PRIVATE_HOME = "SPBENCH_PRIVATE_HOME"
"""The folder that replaces a missing home, for processes that inherit it as HOME."""
_NO_HOME = "/nonexistent"
"""The home of users without one in Debian's list of users; only root can create it."""

_OPENING_LINE = OpeningLine()


def main() -> None:
    """Run the command line, without an option parser for the simplest commands."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"spbench {__version__}")
        return
    _open_closed_streams()
    _OPENING_LINE.show(arguments)
    _name_home()
    # Without this, pydantic searches all installed packages for plug-ins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        code = _run(arguments)
    finally:
        _OPENING_LINE.erase()
    _flush()
    sys.exit(code)


def _run(arguments: Sequence[str]) -> int:
    if suites := plain_suites(arguments):
        return _validate(suites)
    if arguments[:1] in COMMANDS:
        return _run_tui_command(arguments)
    return _run_command_line()


def plain_suites(arguments: Sequence[str]) -> list[str]:
    """Return the suites of a ``validate`` command without options; otherwise nothing.

    Editors and commit hooks wait for this command. It is parsed here, without importing Typer.
    """
    if arguments[:1] != ["validate"] or any(word.startswith("-") for word in arguments):
        return []
    return list(arguments[1:])


def _validate(suites: Sequence[str]) -> int:
    gc.disable()  # all objects live until the end; collecting them would take 12 ms of 200
    from pathlib import Path

    from spbench.cli.error_reporting import run_reporting_errors
    from spbench.cli.validate import validate

    return run_reporting_errors(lambda: validate([Path(suite) for suite in suites]))


def _run_tui_command(arguments: Sequence[str]) -> int:
    from spbench.cli.error_reporting import run_reporting_errors
    from spbench.cli.tui_opening import find_plain_command

    command = find_plain_command(arguments, _open_tui)
    return _run_command_line() if command is None else run_reporting_errors(command)


def _run_command_line() -> int:
    from spbench.cli import tui_commands
    from spbench.cli.app import app, run_command_line

    tui_commands.register(app, _open_tui, _serve_tui)
    return run_command_line()


def _open_closed_streams() -> None:
    """Open /dev/null for closed standard streams, such as after ``>&-``.

    Otherwise the next opened file, for example an event log, would get the stream's descriptor, and
    programs would print into it. Python represents a closed stream as None.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115


def _name_home() -> None:
    """Set HOME if a service or a container has none, because Open MPI needs it.

    If the system has no home folder of the user either, HOME is a new private folder. In a shared
    folder, such as /tmp, any user could place configuration files of this user's programs.
    """
    current = os.environ.pop("HOME", "")
    inherited = os.environ.pop(_ENV_PRIVATE_HOME, None)
    # An inherited private folder is not reused: its process may remove it before this one ends.
    if current and current != inherited:
        os.environ["HOME"] = current
        return
    home = os.path.expanduser("~")  # without HOME, from the system's list of users
    if not os.path.isdir(home):
        home = os.environ[_ENV_PRIVATE_HOME] = _make_private_home()
    os.environ["HOME"] = home


def _make_private_home() -> str:
    """Create a folder that is removed when this process ends, and return its path."""
    import atexit
    import shutil
    import tempfile

    try:
        home = tempfile.mkdtemp(prefix="spbench-home-")
    except OSError:  # no temporary folder is writable
        return _NO_HOME
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home


def _open_tui(**options: "Unpack[TuiOptions]") -> int:
    gc.disable()  # until a page is shown: collections would take 60 ms of 700
    from spbench.tui.start import open_tui

    _OPENING_LINE.erase()
    return open_tui(**options)


def _serve_tui(
    args: Sequence[str],
    *,
    host: str,
    port: int,
    with_token: bool,
    print_address: Callable[[str], None],
) -> None:
    """Serve ``spbench tui`` with these arguments to browsers until a signal comes.

    Raises:
        MissingError: textual-serve is not installed.
        UsageError: The address cannot be listened on.
    """
    import asyncio
    import secrets
    import shlex

    from spbench.errors import MissingError

    try:
        from spbench.tui.web.server import ConsoleServer
    except ImportError as error:
        missing = f"spbench serve needs textual-serve ({error.name} is missing)"
        raise MissingError(f"{missing}; pip install 'spbench[serve]'") from None
    command = shlex.join([sys.executable, "-m", "spbench", "tui", *args])
    token = secrets.token_urlsafe(18) if with_token else None
    asyncio.run(ConsoleServer(command, token).run(host, port, print_address))


def _flush() -> None:
    """Flush the standard streams.

    If the reader of a pipe is gone, Python would exit with 120. The stream is redirected instead.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
