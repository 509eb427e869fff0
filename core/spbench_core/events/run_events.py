"""The console's own events in ``events.jsonl``, ``spbench.events/1``: a run, its jobs, its cases.

They stand among the rank events and have ``event`` and ``time`` (seconds since the epoch, UTC), but
neither ``seq`` nor a rank that says them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from spbench_core.events.fields import (
    FLAG,
    INTEGER,
    LEFT_OUT,
    LIST,
    NOTHING,
    NUMBER,
    OBJECT,
    TEXT,
    EventError,
    Fields,
    check,
)

_TEXT_OR_NONE = TEXT | NOTHING
_INTEGER_OR_NONE = INTEGER | NOTHING
FIELDS: Mapping[str, Fields] = {
    "run_start": {
        "time": NUMBER,
        "id": TEXT,
        "suite": TEXT,
        "description": TEXT,
        "argv": LIST,
        "seed": _INTEGER_OR_NONE,
        "environment": OBJECT,
        "cases": LIST,
    },
    "job_start": {
        "time": NUMBER,
        "job": INTEGER,
        "launcher": TEXT,
        "version": TEXT,
        "argv": LIST,
        "hostfile": _TEXT_OR_NONE,
        "env": OBJECT,
        "np": INTEGER,
        "cases": LIST,
        "oversubscribed": FLAG,
    },
    "rank_lost": {
        "time": NUMBER,
        "job": INTEGER,
        "rank": _INTEGER_OR_NONE,
        "host": TEXT,
        "reason": TEXT,
    },
    "case_judged": {
        "time": NUMBER,
        "case": TEXT,
        "status": TEXT,
        "reason": _TEXT_OR_NONE,
        "expectations": LIST,
        "traceback": _TEXT_OR_NONE | LEFT_OUT,
    },
    "job_end": {
        "time": NUMBER,
        "job": INTEGER,
        "reason": _TEXT_OR_NONE,
        "status": _INTEGER_OR_NONE,
        "strangers": INTEGER,
    },
    "run_end": {
        "time": NUMBER,
        "verdict": TEXT,
        "exit_code": INTEGER,
        "errors": LIST,
        "findings": LIST,
    },
}
CASE: Fields = {
    "id": TEXT,
    "name": TEXT,
    "benchmark": TEXT,
    "params": OBJECT,
    "np": INTEGER,
    "repeat": INTEGER,
    "inject": _TEXT_OR_NONE,
    "measures": TEXT,
    "metrics": LIST,
    "checks": LIST,
    "expect": LIST,
    "places": LIST,
}
"""A case in ``run_start``: all that readers of the run need to know of it without the catalog."""


def run_event(kind: str, **fields: Any) -> dict[str, Any]:
    """Return an event of the console's own, said now.

    Raises:
        EventError: There is no such kind, or a field is missing, unknown or of a wrong type.
    """
    event = {"event": kind, "time": round(time.time(), 6), **fields}
    known = FIELDS.get(kind)
    if known is None:
        raise EventError(f"unknown event {kind!r}")
    check(kind, event, known)
    unknown = sorted(fields.keys() - known.keys())
    if unknown:
        raise EventError(f"{kind}: unknown field {unknown[0]!r}")
    for case in event["cases"] if kind == "run_start" else ():
        check("a case of run_start", case, CASE)
    return event
