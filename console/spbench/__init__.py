"""spbench: a cluster benchmark console for high-resolution deep learning."""

import os


def _version() -> str:
    """Return what the build wrote: it is read much faster than the installed metadata."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "version.txt")) as file:
            return file.read().strip()
    except OSError:
        return "0+notbuilt"  # a tree on the import path that was never installed


__version__ = _version()
