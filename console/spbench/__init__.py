"""spbench: a cluster benchmark console for high-resolution deep learning."""

from __future__ import annotations

import os

# Like typing.TYPE_CHECKING. Importing typing would delay every command.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spbench.api import RunResults


def _version() -> str:
    """Return the version from the build's file, since reading metadata is slower."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "version.txt")) as file:
            return file.read().strip()
    except OSError:
        return "0+notbuilt"  # a tree on the import path that was never installed


__version__ = _version()


def load_run(path: str | os.PathLike[str]) -> RunResults:
    """Load the results of a run from its folder or from the file of its report.

    Raises:
        UsageError: The path is neither, or cannot be read.
    """
    from spbench.api import load_run as load  # this import takes half a second

    return load(path)
