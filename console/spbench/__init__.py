"""spbench: a cluster benchmark console for high-resolution deep learning."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing's, whose import each command would wait for
if TYPE_CHECKING:
    from spbench.api import RunResults


def _version() -> str:
    """Return what the build wrote: it is read much faster than the installed metadata."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "version.txt")) as file:
            return file.read().strip()
    except OSError:
        return "0+notbuilt"  # a tree on the import path that was never installed


__version__ = _version()


def load_run(path: str | os.PathLike[str]) -> RunResults:
    """Return what a run measured, by its folder or by the file of its report.

    Raises:
        UsageError: It is neither, or cannot be read.
    """
    from spbench.api import load_run as load  # it takes half a second to import

    return load(path)
