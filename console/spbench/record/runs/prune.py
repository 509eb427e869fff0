"""Removal of old runs, except for running ones and those of baselines."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spbench.errors import FailedRunError, UsageError
from spbench.record.runs.files import read_json, unwritable_error
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary, read_summary_with_note
from spbench.safe_files import FOLDER_MODE, open_folder
from spbench_core.events.statuses import RunStatus

BASELINES = "baselines"
"""The folder of a home's baselines. ``run`` and ``runs`` of each name its runs."""
_REMOVED = "removed"
_AGE = re.compile(r"(\d{1,6})([hdw])")
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@dataclass(frozen=True, slots=True)
class OldRun:
    """A run to remove, and the bytes of its files."""

    summary: RunSummary
    size_bytes: int


def parse_age(text: str) -> float:
    """Return ``12h``, ``30d`` or ``4w`` in seconds.

    Raises:
        UsageError: It has another form.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(f"--older {text!r} is no age; write it as 12h, 30d or 4w")
    return int(match[1]) * _SECONDS[match[2]]


def find_old_runs(
    home: Path, runs: Sequence[RunSummary], keep: int, older: float, now: float
) -> list[OldRun]:
    """Return the runs that may be removed, the oldest first.

    Args:
        home: The folder of the runs.
        runs: All runs, the oldest first.
        keep: The number of newest runs that are kept in any case.
        older: The smallest age of a run to remove, in seconds. A run without a start time is as old
            as its folder.
        now: The time in seconds since the epoch.

    Raises:
        UsageError: A baseline cannot be read, so that its runs are unknown.
    """
    kept_ids = _list_baseline_runs(home)
    old_runs = [
        run
        for run in runs[: max(0, len(runs) - keep)]
        if run.status != RunStatus.RUNNING
        and run.id not in kept_ids
        and now - _find_start(run) >= older
    ]
    return [
        OldRun(run, _count_bytes(run.folder.path))
        for run in old_runs
        if not run.folder.path.is_symlink()
    ]


def _list_baseline_runs(home: Path) -> set[str]:
    ids = set()
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
            names = [content.get("run"), *(runs if isinstance(runs, list) else ())]
            ids |= {run for run in names if isinstance(run, str)}
    return ids


def _find_start(run: RunSummary) -> float:
    if run.started is not None:
        return run.started
    with suppress(OSError):
        return run.folder.path.stat().st_mtime
    return 0.0


def _count_bytes(folder: Path) -> int:
    total = 0
    for folder_path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder_path, name)).st_size
    return total


def remove_run(home: Path, folder: RunFolder) -> bool:
    """Remove a run atomically, so that a reader sees all of it or nothing.

    The remains of a killed removal are removed with the next run.

    Returns:
        False if the run is running again, or another console has removed it.

    Raises:
        FailedRunError: It cannot be removed.
    """
    if read_summary_with_note(folder).status == RunStatus.RUNNING:
        return False
    removed_folder = home / _REMOVED
    try:
        with open_folder(removed_folder, home, FOLDER_MODE) as descriptor:
            os.rename(folder.path, folder.id, dst_dir_fd=descriptor)
        shutil.rmtree(removed_folder)  # it follows no link, so that nothing else is removed
    except FileNotFoundError:
        return False  # another console was quicker
    except OSError as error:
        raise _not_removed_error(folder, error) from None
    return True


def _not_removed_error(folder: RunFolder, error: OSError) -> FailedRunError:
    return FailedRunError(f"{unwritable_error(folder.path, error)}; it was not wholly removed")
