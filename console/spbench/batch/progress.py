"""The progress of a batch job from its files: start, launches and end."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spbench.batch.plan_file import LOG_NAME, BatchPlan, PlannedJob
from spbench.engine.faults.launcher_output import read_tail
from spbench.errors import MissingError
from spbench.record.number_formatting import replace_controls
from spbench_core.events.batch_files import (
    LaunchFolder,
    list_launches,
    parse_time,
    read_words,
)

SILENCE_TIMEOUT = 30.0
"""Seconds without a heartbeat after which a batch job without an end counts as dead."""


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch job.

    Attributes:
        time: Seconds since the epoch; None if the script has not recorded an end.
        signal: The signal that ended it, if any.
        alive: Whether the job still runs.
    """

    time: float | None
    signal: str | None
    alive: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """A launch, and its cases that no later launch runs again.

    Attributes:
        planned_job: The job as planned.
        folder: The folder of the launch.
        cases: The ids of these cases.
        last: Whether it is the last launch of its job.
    """

    planned_job: PlannedJob
    folder: LaunchFolder
    cases: tuple[str, ...]
    last: bool

    @property
    def resumed(self) -> bool:
        """Whether it was interrupted, and a later launch runs the remaining cases."""
        return self.folder.was_interrupted and not self.last


def read_start_time(batch: Path) -> float:
    """Return the time at which the script began, in seconds since the epoch.

    Raises:
        MissingError: The job has not begun, or has not launched anything.
    """
    start_fields = read_words(batch / "starts")
    start = parse_time(start_fields[0]) if start_fields else None
    if start is not None:
        return start
    log = batch / LOG_NAME
    if log.exists():
        lines = read_tail(log).strip().splitlines() or ["it is empty"]
        raise MissingError(
            f"the batch job of {batch} has launched nothing yet: it is in its set-up (modules and "
            f"lines of launch.batch), or ended there; {log}: {replace_controls(lines[-1])}"
        )
    raise MissingError(
        f"the batch job of {batch} has not begun: submit {batch / 'job.sh'}, or wait until the "
        "scheduler starts it"
    )


def find_end(batch: Path, plan: BatchPlan) -> BatchEnd:
    """Return the end of a batch job, from its script and its ranks' heartbeats.

    If the ranks of a launch have not written events so far, the start timeout applies.
    """
    end_fields = read_words(batch / "ended")
    if end_fields:
        signal = end_fields[1] if len(end_fields) > 1 else None
        return BatchEnd(parse_time(end_fields[0]), signal, alive=False)
    silence_timeout = SILENCE_TIMEOUT
    for job in plan.jobs:
        newest_launch = list_launches(batch / "jobs" / str(job.number))[-1:]
        if any(map(_is_starting, newest_launch)):
            silence_timeout = max(silence_timeout, job.start_timeout)
    last_change = 0.0
    for pattern in ("starts", "jobs/*/*/*", "jobs/*/*/events/*.jsonl"):
        for path in batch.glob(pattern):
            with suppress(OSError):
                last_change = max(last_change, path.stat().st_mtime)
    return BatchEnd(None, None, alive=time.time() - last_change < silence_timeout)


def _is_starting(launch: LaunchFolder) -> bool:
    return launch.start_time is not None and launch.end is None and not launch.list_event_files()


def find_attempts(batch: Path, plan: BatchPlan) -> list[Attempt]:
    """Return the launches by start time, each with the cases that none after it runs."""
    attempts = []
    for job in plan.jobs:
        later_ids: set[str] = set()
        folders = list_launches(batch / "jobs" / str(job.number))
        for index, folder in reversed(list(enumerate(folders))):
            launched_ids = {case["id"] for case in folder.read_cases()} & set(job.cases)
            last_here = tuple(case for case in job.cases if case in launched_ids - later_ids)
            later_ids |= launched_ids
            if last_here and folder.start_time is not None:
                is_last = index == len(folders) - 1
                attempts.append(Attempt(job, folder, last_here, is_last))
    return sorted(attempts, key=lambda attempt: attempt.folder.start_time or 0.0)
