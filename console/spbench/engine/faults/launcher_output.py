"""The output of a launcher and its ranks, searched for reasons of an end."""

from __future__ import annotations

import os
import re
from pathlib import Path

TAIL_BYTES = 100_000
"""Bytes at the end of each file that are searched, because ranks may print gigabytes."""

_UNREACHED = re.compile(r"spbench: no console at (\S+):\s")
_RANK_ERRORS = (
    re.compile(r"spbench: (setup line failed: .*)"),
    re.compile(r"^(\S*python\S*: (?:No module named|can't open file) .+)$", re.MULTILINE),
    re.compile(r"^(\S+: error while loading shared libraries: .+)$", re.MULTILINE),
    re.compile(
        r"^\S+: line \d+: (?:exec: )?(.+: (?:No such file or directory|Permission denied"
        r"|(?:command )?not found|cannot execute.*))$",
        re.MULTILINE,
    ),
    # an error in communication is that of a rank that had connected
    re.compile(
        r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+"
        r"(?!mpi4py\.MPI\.|KeyboardInterrupt)(\w[\w.]*(?:Error|Exception|Exit)\b.*)",
        re.MULTILINE,
    ),
)


def read_output(folder: Path) -> str:
    """Return the end of a launcher's stderr and stdout.

    Hydra reports the ends of ranks on its stdout.
    """
    return "\n".join(read_tail(folder / name) for name in ("stderr.log", "stdout.log"))


def read_tail(path: Path) -> str:
    """Return the last TAIL_BYTES bytes of a file as text; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def extract_rank_stderr(output: str) -> str | None:
    """Return the stderr of ranks without a connection, or None."""
    unreachable_console = _UNREACHED.search(output)
    if unreachable_console:
        address = unreachable_console[1]
        return f"ranks cannot reach the console at {address}: check firewalls and routes"
    match = next(filter(None, (pattern.search(output) for pattern in _RANK_ERRORS)), None)
    return match[1].strip() if match else None
