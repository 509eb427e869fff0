"""The suite that was last opened from each folder, in a file next to the settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spbench.config_files import UntrustedFileError, check_folder, open_trusted
from spbench.errors import SpbenchError
from spbench.suites.shipped import list_shipped_suites
from spbench.tui.settings import MAX_BYTES, find_settings_path
from spbench.tui.suites.document import locate_copy

FILE_NAME = "last_suites.json"
MAX_FOLDERS = 100
"""Number of folders that are remembered, those used last."""


def find_last_suite(environ: Mapping[str, str], folder: Path) -> Path | None:
    """Return the suite that was last opened from a folder; None if it is gone.

    If it was a copy that was not saved, the shipped suite is returned.
    """
    name = _read(_locate(environ)).get(str(folder))
    if name is None:
        return None
    path = Path(name)
    if os.path.lexists(path):
        return path
    shipped = list_shipped_suites().values()
    return next((suite for suite in shipped if locate_copy(suite, folder) == path), None)


def save_last_suite(environ: Mapping[str, str], folder: Path, suite: Path) -> None:
    """Remember that a suite was opened from a folder, if that is possible."""
    from spbench.record.runs.files import write_file

    path = _locate(environ)
    suites = _read(path)
    suites.pop(str(folder), None)
    suites[str(folder)] = str(suite)
    newest = dict(list(suites.items())[-MAX_FOLDERS:])
    with suppress(OSError, SpbenchError, UntrustedFileError):
        check_folder(path)
        write_file(path, json.dumps(newest, indent=2), mode=0o600, root=path.parent)


def _locate(environ: Mapping[str, str]) -> Path:
    return find_settings_path(environ).with_name(FILE_NAME)


def _read(path: Path) -> dict[str, str]:
    """Return the suites by folder; empty if there is no valid file of this user."""
    content: Any = None
    with suppress(OSError, ValueError, UntrustedFileError), open_trusted(path) as file:
        content = json.loads(file.read(MAX_BYTES))
    if not isinstance(content, dict):
        return {}
    return {folder: suite for folder, suite in content.items() if isinstance(suite, str)}
