"""A launcher's program: its path and version, searched for."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

_PATIENCE = 10.0


def search(names: Sequence[str], env: Mapping[str, str], *first: Path) -> tuple[Path, ...]:
    """Return the programs of these names in the folders ``first``, then in PATH; each once."""
    folders = [*map(str, first), *env.get("PATH", os.defpath).split(os.pathsep)]
    found = (shutil.which(name, path=folder) for folder in folders if folder for name in names)
    return tuple(dict.fromkeys(Path(path).absolute() for path in found if path))


@lru_cache
def output_of(executable: Path, *words: str) -> str:
    """Return what a program prints on stdout; empty where it fails or takes 10 s."""
    try:
        done = subprocess.run(
            [executable, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
