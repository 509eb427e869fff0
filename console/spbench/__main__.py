"""The ``spbench`` command."""

import os
import sys

from spbench import __version__


def main() -> None:
    """Run the command line; the version is answered without loading the rest."""
    if sys.argv[1:] == ["--version"]:
        print(f"spbench {__version__}")
        return
    from spbench.cli.app import run_command_line

    code = run_command_line()
    _flush()
    sys.exit(code)


def _flush() -> None:
    """Write out what is left; where nobody reads it any more, Python would exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
