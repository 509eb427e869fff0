"""The console's own events in ``events.jsonl``, ``spbench.events/1``: a run, its jobs, its cases.

They stand among the rank events and have ``event`` and ``time`` (seconds since the epoch, UTC), but
neither ``seq`` nor a rank that says them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from spbench_core.events import fields
from spbench_core.events.fields import EventError, Fields, check

_TEXT_OR_NONE = fields.TEXT | fields.NOTHING
_INTEGER_OR_NONE = fields.INTEGER | fields.NOTHING
FIELDS: Mapping[str, Fields] = {
    "run_start": {
        "time": fields.NUMBER,
        "id": fields.TEXT,
        "suite": fields.TEXT,
        "description": fields.TEXT,
        "argv": fields.LIST,
        "seed": _INTEGER_OR_NONE,
        "environment": fields.OBJECT,
        "cases": fields.LIST,
    },
    "job_start": {
        "time": fields.NUMBER,
        "job": fields.INTEGER,
        "launcher": fields.TEXT,
        "version": fields.TEXT,
        "argv": fields.LIST,
        "hostfile": _TEXT_OR_NONE,
        "env": fields.OBJECT,
        "np": fields.INTEGER,
        "cases": fields.LIST,
        "oversubscribed": fields.FLAG,
    },
    "rank_lost": {
        "time": fields.NUMBER,
        "job": fields.INTEGER,
        "rank": _INTEGER_OR_NONE,
        "host": fields.TEXT,
        "reason": fields.TEXT,
    },
    "case_judged": {
        "time": fields.NUMBER,
        "case": fields.TEXT,
        "status": fields.TEXT,
        "reason": _TEXT_OR_NONE,
        "expectations": fields.LIST,
        "traceback": _TEXT_OR_NONE | fields.LEFT_OUT,
    },
    "job_end": {
        "time": fields.NUMBER,
        "job": fields.INTEGER,
        "reason": _TEXT_OR_NONE,
        "status": _INTEGER_OR_NONE,
        "strangers": fields.INTEGER,
    },
    "run_end": {
        "time": fields.NUMBER,
        "verdict": fields.TEXT,
        "exit_code": fields.INTEGER,
        "errors": fields.LIST,
        "findings": fields.LIST,
    },
}
CASE: Fields = {
    "id": fields.TEXT,
    "name": fields.TEXT,
    "benchmark": fields.TEXT,
    "params": fields.OBJECT,
    "np": fields.INTEGER,
    "repeat": fields.INTEGER,
    "inject": _TEXT_OR_NONE,
    "measures": fields.TEXT,
    "metrics": fields.LIST,
    "checks": fields.LIST,
    "expect": fields.LIST,
    "places": fields.LIST,
}
"""A case in ``run_start``: all that readers of the run need to know of it without the catalog."""


def run_event(kind: str, **said: Any) -> dict[str, Any]:
    """Return an event of the console's own, said now.

    Raises:
        EventError: There is no such kind, or a field is missing, unknown or of a wrong type.
    """
    event = {"event": kind, "time": round(time.time(), 6), **said}
    known = FIELDS.get(kind)
    if known is None:
        raise EventError(f"unknown event {kind!r}")
    check(kind, event, known)
    unknown = sorted(said.keys() - known.keys())
    if unknown:
        raise EventError(f"{kind}: unknown field {unknown[0]!r}")
    for case in event["cases"] if kind == "run_start" else ():
        check("a case of run_start", case, CASE)
    return event
