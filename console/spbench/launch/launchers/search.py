"""Search for a launcher's program and its version."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

_TIMEOUT = 10.0


def find_programs(names: Sequence[str], env: Mapping[str, str], *first: Path) -> tuple[Path, ...]:
    """Return the paths of programs in the folders ``first``, then in PATH."""
    folders = [*map(str, first), *env.get("PATH", os.defpath).split(os.pathsep)]
    paths = (shutil.which(name, path=folder) for folder in folders if folder for name in names)
    return tuple(dict.fromkeys(Path(path).absolute() for path in paths if path))


@lru_cache
def capture_stdout(executable: Path, *args: str) -> str:
    """Return a program's stdout; empty if it fails or takes more than 10 s."""
    try:
        process = subprocess.run(
            [executable, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout if process.returncode == 0 else ""
