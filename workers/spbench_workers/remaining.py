"""The cases that a batch job has still to run, for its next launch.

Standard library only.

    python -m spbench_workers.remaining JOB LAUNCH

writes them to ``JOB/LAUNCH/cases.json`` and exits with 0; with 1 where none are left, or where two
launches in a row have started none. A case that was under way when its launch failed is not run
again; one whose launch was ended from outside (a time limit, a node that failed, a requeue) is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spbench_core.events.batch_files import (
    CASES_FILE,
    LaunchFolder,
    list_launches,
    read_cases,
    read_complete_lines,
)
from spbench_core.events.fields import EventError
from spbench_core.events.rank_events import decode
from spbench_core.events.statuses import RankStatus

MOST_IDLE = 2
"""Launches in a row without the start of a case, after which no other is tried."""


def list_remaining(job: Path) -> list[dict[str, Any]]:
    """Return the cases of a job that are left to run, an entry a repeat."""
    planned = read_cases(job)
    spent: set[str] = set()
    idle = 0
    for launch in list_launches(job):
        started, ended = read_progress(launch)
        if launch.was_interrupted:
            spent |= ended
        else:
            spent |= started
            idle = 0 if started else idle + 1
    left = [case for case in planned if case["id"] not in spent]
    return left if idle < MOST_IDLE else []


def read_progress(launch: LaunchFolder) -> tuple[set[str], set[str]]:
    """Return the ids of the cases that a rank has started, and of those that all have ended."""
    started: set[str] = set()
    ends: dict[str, int] = {}
    size = 0
    for path in launch.list_event_files():
        for line in read_complete_lines(path):
            try:
                event = decode(line)
            except EventError:
                continue
            if event["event"] == "ready":
                size = event["size"]
            elif event["event"] == "case_start":
                started.add(event["case"])
            elif event["event"] == "case_end" and event["status"] == RankStatus.OK:
                ends[event["case"]] = ends.get(event["case"], 0) + 1
    repeats: dict[str, int] = {}
    for case in launch.read_cases():
        repeats[case["id"]] = repeats.get(case["id"], 0) + 1
    return started, {case for case, count in ends.items() if count == size * repeats.get(case, 0)}


def main(words: list[str]) -> int:
    """Write the cases of the next launch; return the exit status."""
    job = Path(words[0])
    launch = words[1]
    left = list_remaining(job)
    if left:
        (job / launch / CASES_FILE).write_text(json.dumps(left))
    return 0 if left else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
