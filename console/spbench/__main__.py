"""The ``spbench`` command: the only module that knows the command line and the console."""

import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

from spbench import __version__

_ENV_PRIVATE_HOME = "SPBENCH_PRIVATE_HOME"
"""The folder that replaces a missing home, for processes that inherit it as HOME."""
_NO_HOME = "/nonexistent"
"""The home of users without one in Debian's list of users; nobody but root can make it."""


def main() -> None:
    """Run the command line; some are answered without the library that reads them."""
    if sys.argv[1:] == ["--version"]:
        print(f"spbench {__version__}")
        return
    _open_closed_streams()
    _name_home()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # no search of all packages
    suites = plain_suites(sys.argv[1:])
    code = _validate(suites) if suites else _run_command_line()
    _flush()
    sys.exit(code)


def plain_suites(words: Sequence[str]) -> list[str]:
    """Return the suites of a command line that validates them and has no option; else nothing.

    Such a line, which editors and commit hooks wait for, needs no library to be read.
    """
    if words[:1] != ["validate"] or any(word.startswith("-") for word in words):
        return []
    return list(words[1:])


def _validate(suites: Sequence[str]) -> int:
    gc.disable()  # what is loaded stays until the end: to look through it takes 12 ms of 200
    from pathlib import Path

    from spbench.cli.error_reporting import run_reporting_errors
    from spbench.cli.validate import validate

    return run_reporting_errors(lambda: validate([Path(suite) for suite in suites]))


def _run_command_line() -> int:
    from spbench.cli import console
    from spbench.cli.app import app, run_command_line

    console.register(app, _open_console, _serve_console)
    return run_command_line()


def _open_closed_streams() -> None:
    """Open /dev/null where a standard stream was closed, as by ``>&-``: Python has None there.

    Else the next file that is opened, an event log say, would be what programs print into.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115


def _name_home() -> None:
    """Set HOME where a service or a container has none: Open MPI does not start without.

    If the system knows no home folder of the user either, it is a new private folder. In a shared
    one, such as /tmp, any user could put the configuration of this user's programs.
    """
    given = os.environ.pop("HOME", "")
    inherited = os.environ.pop(_ENV_PRIVATE_HOME, None)
    # The folder of the process that started this one may be removed before this one ends.
    if given and given != inherited:
        os.environ["HOME"] = given
        return
    home = os.path.expanduser("~")  # by the user's entry in the system
    if not os.path.isdir(home):
        home = os.environ[_ENV_PRIVATE_HOME] = _make_private_home()
    os.environ["HOME"] = home


def _make_private_home() -> str:
    """Make a folder that is removed when this process ends, and return its path."""
    import atexit
    import shutil
    import tempfile

    try:
        home = tempfile.mkdtemp(prefix="spbench-home-")
    except OSError:  # no folder of temporary files can be written
        return _NO_HOME
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home


def _open_console(**asked: Any) -> int:
    from spbench.tui.start import open_console

    return open_console(**asked)


def _serve_console(words: Sequence[str], **asked: Any) -> None:
    from spbench.tui.web.start import serve_console

    serve_console(words, **asked)


def _flush() -> None:
    """Write out what is left; where nobody reads it any more, Python would exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
