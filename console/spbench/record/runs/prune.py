"""Removal of old runs: never one that a baseline names, and never one that goes on."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spbench.errors import FailedRunError, UsageError
from spbench.record.runs.event_log import unwritable_error
from spbench.record.runs.files import read_json
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary, read_summary
from spbench.safe_files import FOLDER_MODE, open_folder
from spbench_core.events.statuses import RunStatus

BASELINES = "baselines"
"""The folder of a home's baselines; ``run`` and ``runs`` of each name those it was made of."""
_REMOVED = "removed"
_AGE = re.compile(r"(\d{1,6})([hdw])")
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@dataclass(frozen=True, slots=True)
class OldRun:
    """A run that goes, and the bytes of its files."""

    summary: RunSummary
    bytes: int


def parse_age(text: str) -> float:
    """Return ``12h``, ``30d`` or ``4w`` in seconds.

    Raises:
        UsageError: It is none of these.
    """
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError(f"--older {text!r} is no age; write it as 12h, 30d or 4w")
    return int(found[1]) * _SECONDS[found[2]]


def find_old_runs(
    home: Path, runs: Sequence[RunSummary], keep: int, older: float, now: float
) -> list[OldRun]:
    """Return the runs that may go, the oldest first.

    Args:
        home: The folder of the runs.
        runs: All of them, the oldest first.
        keep: The newest runs that stay in any case.
        older: A run goes only when it started longer ago than this, in seconds; one that does not
            say when it started is as old as its folder.
        now: In seconds since the epoch.

    Raises:
        UsageError: A baseline cannot be read: its run might go.
    """
    named = _baseline_runs(home)
    old = [
        run
        for run in runs[: max(0, len(runs) - keep)]
        if run.verdict != RunStatus.RUNNING and run.id not in named and now - _started(run) >= older
    ]
    return [OldRun(run, _bytes(run.folder.path)) for run in old if not run.folder.path.is_symlink()]


def _baseline_runs(home: Path) -> set[str]:
    found = set()
    for path in sorted((home / BASELINES).glob("*.json")):
        try:
            content = read_json(path)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{path} cannot be read ({error}), and nothing is removed without knowing which "
                "run it needs; correct the baseline or remove it"
            ) from None
        if isinstance(content, dict):
            runs = content.get("runs")
            of = [content.get("run"), *(runs if isinstance(runs, list) else ())]
            found |= {run for run in of if isinstance(run, str)}
    return found


def _started(run: RunSummary) -> float:
    if run.started is not None:
        return run.started
    with suppress(OSError):
        return run.folder.path.stat().st_mtime
    return 0.0


def _bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def remove_run(home: Path, folder: RunFolder) -> bool:
    """Remove a run at once: a reader sees all of it or nothing. False where it goes on again.

    What a kill leaves of it is removed with the next one.

    Raises:
        FailedRunError: It cannot be removed.
    """
    if read_summary(folder).verdict == RunStatus.RUNNING:
        return False
    aside = home / _REMOVED
    try:
        with open_folder(aside, home, FOLDER_MODE) as there:
            os.rename(folder.path, folder.id, dst_dir_fd=there)
        shutil.rmtree(aside)  # it follows no link
    except FileNotFoundError:
        return False  # another console was quicker
    except OSError as error:
        raise _not_removed(folder, error) from None
    return True


def _not_removed(folder: RunFolder, error: OSError) -> FailedRunError:
    return FailedRunError(f"{unwritable_error(folder.path, error)}; it was not wholly removed")
