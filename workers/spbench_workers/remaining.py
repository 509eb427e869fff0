"""The remaining cases of a batch job, for its next launch. Standard library only.

    python -m spbench_workers.remaining JOB LAUNCH

It writes them to ``JOB/LAUNCH/cases.json`` and exits with 0. It exits with 1 if no case remains, or
if two consecutive launches have not started any. A case that was running when its launch failed is
not run again. If the launch was ended from outside (by a time limit, a failed node or a requeue),
the case is run again.
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

MAX_IDLE_LAUNCHES = 2
"""Consecutive launches without a started case after which no other launch is tried."""


def list_remaining(job: Path) -> list[dict[str, Any]]:
    """Return the remaining cases of a job, one entry per repeat."""
    planned = read_cases(job)
    spent_ids: set[str] = set()
    idle_launches = 0
    for launch in list_launches(job):
        started, ended = read_progress(launch)
        spent_ids |= ended if launch.was_interrupted else started
        if started:
            idle_launches = 0
        elif not launch.was_interrupted:
            idle_launches += 1
    cases = [case for case in planned if case["id"] not in spent_ids]
    return cases if idle_launches < MAX_IDLE_LAUNCHES else []


def read_progress(launch: LaunchFolder) -> tuple[set[str], set[str]]:
    """Return the ids of the cases that any rank has started, and that all have ended."""
    started: set[str] = set()
    end_count_by_case: dict[str, int] = {}
    rank_count = 0
    for path in launch.list_event_files():
        for line in read_complete_lines(path):
            try:
                event = decode(line)
            except EventError:
                continue
            if event["event"] == "ready":
                rank_count = event["size"]
            elif event["event"] == "case_start":
                started.add(event["case"])
            elif event["event"] == "case_end" and event["status"] == RankStatus.OK:
                end_count_by_case[event["case"]] = end_count_by_case.get(event["case"], 0) + 1
    repeats_by_case: dict[str, int] = {}
    for case in launch.read_cases():
        repeats_by_case[case["id"]] = repeats_by_case.get(case["id"], 0) + 1
    return started, {
        case
        for case, count in end_count_by_case.items()
        if count == rank_count * repeats_by_case.get(case, 0)
    }


def main(arguments: list[str]) -> int:
    """Write the cases of the next launch; return the exit status."""
    job = Path(arguments[0])
    launch = arguments[1]
    cases = list_remaining(job)
    if cases:
        (job / launch / CASES_FILE).write_text(json.dumps(cases))
    return 0 if cases else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
