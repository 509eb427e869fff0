"""The ``spbench`` command."""

import sys

from spbench import __version__


def main() -> None:
    """Run the command line; the version is answered without loading the rest."""
    if sys.argv[1:] == ["--version"]:
        print(f"spbench {__version__}")
        return
    from spbench.cli.app import run_command_line

    sys.exit(run_command_line())


if __name__ == "__main__":
    main()
