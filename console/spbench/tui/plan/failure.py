"""Why there is no plan, with the next step."""

from __future__ import annotations

from pathlib import Path

from spbench.errors import SpbenchError
from spbench.tui.advice import name_keys

_MAX_LINES = 5
"""The most errors of a file that are shown; a broken profile has one for each layer."""
REMEDY = "→ Correct the field or the file, and press Enter. F2 lists profiles and clusters."


def explain_failure(error: SpbenchError, folder: Path) -> str:
    """Return the first lines of an error message, and the next step.

    Args:
        error: The error.
        folder: The folder of the console, which is left out of the names of files.
    """
    lines = name_keys(str(error)).replace(f"{folder}/", "").splitlines()
    shown = lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        shown.append("...")
    return "\n".join([f"✗ {shown[0]}", *(f"  {line}" for line in shown[1:]), "", REMEDY])
