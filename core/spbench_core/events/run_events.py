"""The console's own events in ``events.jsonl``, ``spbench.events/1``: a run, its jobs, its cases.

They stand among the rank events and have ``event`` and ``time`` (seconds since the epoch, UTC), but
neither ``seq`` nor a rank that says them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

from spbench_core.events import clock, fields
from spbench_core.events.fields import Event, EventError, Fields, check_fields, check_items
from spbench_core.events.statuses import FINAL_STATUSES, CheckOutcome

_TEXT_OR_NONE = fields.TEXT | fields.NULL
_INTEGER_OR_NONE = fields.INTEGER | fields.NULL
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
    # A run goes on that was cut short: ``cases`` run anew, and what they had told counts no more.
    "run_resumed": {
        "time": fields.NUMBER,
        "argv": fields.LIST,
        "environment": fields.OBJECT,
        "cases": fields.LIST,
    },
    # Cases that did not pass run again; as before, only what they tell from now on counts.
    "retry": {
        "time": fields.NUMBER,
        "cases": fields.LIST,
    },
    # A case with ``until`` has run often enough: so many repeats count, for the reason ``why``.
    "repeats_end": {
        "time": fields.NUMBER,
        "case": fields.TEXT,
        "repeats": fields.INTEGER,
        "why": fields.TEXT,
        # The 95 % interval of the median over the median; null of fewer than six launches.
        "width": fields.NUMBER | fields.NULL,
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
        "asked": fields.OBJECT | fields.ABSENT,
        # The one repeat of its cases that the job runs; left out where it runs all of them.
        "repeat": fields.INTEGER | fields.ABSENT,
        # Of cases with a job on each host: the number that its rank 0 has among theirs.
        "first_rank": fields.INTEGER | fields.ABSENT,
    },
    "rank_lost": {
        "time": fields.NUMBER,
        "job": fields.INTEGER,
        "rank": _INTEGER_OR_NONE,
        "host": fields.TEXT,
        "reason": fields.TEXT,
    },
    # The first rank has started a case: ``case_start`` has the time of that rank's own clock.
    "case_begin": {
        "time": fields.NUMBER,
        "case": fields.TEXT,
    },
    "case_judged": {
        "time": fields.NUMBER,
        "case": fields.TEXT,
        # Of a case with a job on each host: that which the reason speaks of.
        "job": fields.INTEGER | fields.ABSENT,
        "status": fields.TEXT,
        "reason": _TEXT_OR_NONE,
        "expectations": fields.LIST,
        "traceback": _TEXT_OR_NONE | fields.ABSENT,
        # The ranks and hosts that were slow for long.
        "stragglers": fields.LIST | fields.ABSENT,
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
        # The load of the console's machine, as ``load`` of the environment is before the run.
        "load": fields.NUMBER | fields.ABSENT,
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
    "until": fields.OBJECT | fields.ABSENT,
    "version": fields.INTEGER | fields.ABSENT,
    # The ranks of each job, of a case that has one on each host.
    "shares": fields.LIST | fields.ABSENT,
    # What a case has in common with the same case on other numbers of ranks.
    "scaled": fields.OBJECT | fields.ABSENT,
}
"""A case in ``run_start``: all that readers of the run need to know of it without the catalog."""

SCALED: Fields = {"of": fields.TEXT, "work": fields.TEXT, "throughput": _TEXT_OR_NONE}
"""The case's id without its number of ranks, what stays the same over them, and the metric of the
work over time; null: the work is the same, or in proportion to the ranks."""
SCALING_MODES = {"strong", "weak"}
METRIC: Fields = {
    "name": fields.TEXT,
    "unit": fields.TEXT,
    "better": fields.TEXT,
    "fold": fields.TEXT,
    "part_of": _TEXT_OR_NONE | fields.ABSENT,
    # Whether a rank may wait for others in that part.
    "waits": fields.FLAG | fields.ABSENT,
}
"""A metric of a case in ``run_start``."""
EXPECTATION: Fields = {
    "metric": fields.TEXT,
    "op": fields.TEXT,
    "limit": fields.NUMBER | fields.NULL,
    "expression": fields.TEXT | fields.ABSENT,
    "reference": fields.OBJECT | fields.ABSENT,
    # Why it is not judged: the suite has no reference for the system of the run.
    "skipped": fields.TEXT | fields.ABSENT,
}
REFERENCE: Fields = {
    "value": fields.NUMBER,
    "unit": fields.TEXT,
    "lower": fields.NUMBER | fields.NULL,
    "upper": fields.NUMBER | fields.NULL,
    "system": _TEXT_OR_NONE,
}
"""The reference that the limit of an expectation follows from.

``lower`` and ``upper`` are the allowed deviations, as shares of the value; null: no bound.
"""
OUTCOME: Fields = {
    **{name: types for name, types in EXPECTATION.items() if name != "skipped"},
    "value": fields.NUMBER | fields.NULL,
    "status": fields.TEXT,
    "reason": fields.TEXT | fields.ABSENT,
}
"""An expectation of a case, and how it came out, in ``case_judged``.

A limit is null until its ``expression``, of figures of cases of the run, is worked out, and if the
expectation is skipped.
"""
STRAGGLER: Fields = {
    "rank": _INTEGER_OR_NONE,
    "host": fields.TEXT,
    "ratio": fields.NUMBER,
    "seconds": fields.NUMBER,
    "since": fields.NUMBER,
    "cause": fields.FLAG,
}
"""A rank that was slow, or a host (``rank`` is null), in ``case_judged``.

``cause`` is false if it may only have waited for a slow rank.
"""
UNTIL: Fields = {"interval": fields.NUMBER, "max_time": fields.NUMBER}
"""How narrow the interval of a case's median is to be, and the seconds that this may take."""
REPEATS_END_REASONS = {"interval", "max_time", "repeats", "check"}
"""Why a case is not repeated any more: as asked for, by the most repeats, or a failed check."""
FOLDS = {"max", "min", "sum", "mean"}
BETTER = {"lower", "higher", "none"}
OPS = {"max", "min"}


def make_run_event(kind: str, **said: Any) -> Event:
    """Return an event of the console's own, said now.

    Raises:
        EventError: There is no such kind, or a field is missing, unknown or of a wrong type.
    """
    fields_of = {name: _plain(value) for name, value in said.items()}
    event = {"event": kind, "time": clock.now(), **fields_of}
    known = FIELDS.get(kind)
    if known is None:
        raise EventError(f"unknown event {kind!r}")
    check_fields(kind, event, known)
    unknown = sorted(said.keys() - known.keys())
    if unknown:
        raise EventError(f"{kind}: unknown field {unknown[0]!r}")
    for case in event["cases"] if kind == "run_start" else ():
        check_fields("a case of run_start", case, CASE)
    return event


def _plain(value: Any) -> Any:
    """Return a field as JSON gives it back: the text of a status."""
    return value.value if isinstance(value, StrEnum) else value


def check_run_event(event: Mapping[str, Any]) -> None:
    """Check an event that was recorded, to its last part: the log may be anyone's.

    Raises:
        EventError: It is no event of the console's, or something in it is of a wrong type.
    """
    kind = event["event"]
    if kind not in FIELDS:
        raise EventError(f"unknown event {kind[:40]!r}")
    check_fields(kind, event, FIELDS[kind])
    for name in _TEXTS & event.keys():
        check_items(kind, name, event[name], fields.TEXT)
    if kind == "run_start":
        check_items(kind, "cases", event["cases"], fields.OBJECT)
        for case in event["cases"]:
            _check_case(case)
    elif kind in ("run_resumed", "retry"):
        check_items(kind, "cases", event["cases"], fields.TEXT)
    elif kind == "job_start":
        check_items(kind, "cases", event["cases"], fields.TEXT)
        check_items(kind, "env", event["env"].values(), fields.TEXT)
    elif kind == "case_judged":
        _check_word(kind, event["status"], FINAL_STATUSES)
        _check_each(kind, event["expectations"], OUTCOME)
        _check_each(kind, event.get("stragglers", ()), STRAGGLER)
        _check_references(kind, event["expectations"])
        for outcome in event["expectations"]:
            _check_word(kind, outcome["op"], OPS)
            _check_word(kind, outcome["status"], set(CheckOutcome))
    elif kind == "repeats_end":
        _check_word(kind, event["why"], REPEATS_END_REASONS)
        if event["repeats"] < 1:
            raise EventError(f"{kind}: repeats is at least 1")
    elif kind == "run_end":
        _check_word(kind, event["verdict"], FINAL_STATUSES)


_TEXTS = {"argv", "errors", "findings"}


def _check_case(case: Mapping[str, Any]) -> None:
    what = "a case of run_start"
    check_fields(what, case, CASE)
    check_items(what, "checks", case["checks"], fields.TEXT)
    check_items(what, "places", case["places"], fields.OBJECT)
    check_items(what, "shares", case.get("shares", ()), fields.INTEGER)
    _check_each(what, case["metrics"], METRIC)
    _check_each(what, case["expect"], EXPECTATION)
    _check_references(what, case["expect"])
    _check_each(what, [case["scaled"]] if "scaled" in case else (), SCALED)
    if "scaled" in case:
        _check_word(what, case["scaled"]["work"], SCALING_MODES)
    _check_each(what, [case["until"]] if "until" in case else (), UNTIL)
    for metric in case["metrics"]:
        _check_word(what, metric["fold"], FOLDS)
        _check_word(what, metric["better"], BETTER)
    if case["np"] < 1 or case["repeat"] < 1:
        raise EventError(f"{what}: np and repeat are at least 1")


def _check_references(kind: str, expectations: Iterable[Mapping[str, Any]]) -> None:
    for item in expectations:
        if "reference" not in item:
            continue
        _check_each(kind, [item["reference"]], REFERENCE)
        if item["limit"] is None or not item["reference"]["value"] > 0:
            raise EventError(f"{kind}: a reference is above 0 and has a limit")


def _check_each(kind: str, items: Iterable[Any], known: Fields) -> None:
    for item in items:
        if type(item) is not dict or not item.keys() <= known.keys():
            raise EventError(f"{kind}: {str(item)[:80]} is none of its parts")
        check_fields(kind, item, known)


def _check_word(kind: str, word: str, known: Collection[str]) -> None:
    if word not in known:
        raise EventError(f"{kind}: {word[:40]!r} is none of {', '.join(sorted(known))}")
