"""The format of an output file: that of ``--format``, else the one that its name ends with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

FROM_SUFFIX = "; if not given, the suffix of --output decides"
"""The end of the help of ``--format``."""


def choose_format(
    requested: str | None, output: str, suffixes: Mapping[str, str], default: str
) -> str:
    """Return the requested format, else that of the suffix of the file, else the default.

    Args:
        requested: The value of ``--format``; None if it was not given.
        output: The file to write, or ``-`` for stdout.
        suffixes: The format of each known suffix, such as ``.html``.
        default: The format for stdout and for unknown suffixes.
    """
    if requested is not None:
        return requested
    return suffixes.get(PurePath(output).suffix.lower(), default)
