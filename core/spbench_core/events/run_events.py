"""The console's events, ``spbench.events/1``: of a run, its jobs and cases.

They are mixed with the rank events. They have ``event`` and ``time`` (seconds since the epoch,
UTC), but neither ``seq`` nor a sending rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal, get_args

from spbench_core.events import fields
from spbench_core.events.fields import Event, EventError, Fields, check_fields, check_items
from spbench_core.events.statuses import FINAL_STATUSES, CheckOutcome

Better = Literal["lower", "higher", "none"]
"""The direction in which a metric improves."""
Fold = Literal["max", "min", "sum", "mean"]
"""How the ranks' values of an iteration become one value."""
ScalingMode = Literal["strong", "weak"]
"""The work that stays the same over all numbers of ranks: in total, or per rank."""

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
    # An interrupted run continues: ``cases`` run again, and their earlier events do not count.
    "run_resumed": {
        "time": fields.NUMBER,
        "argv": fields.LIST,
        "environment": fields.OBJECT,
        "cases": fields.LIST,
    },
    # Cases that did not pass run again, and their earlier events do not count.
    "retry": {
        "time": fields.NUMBER,
        "cases": fields.LIST,
    },
    # A case with ``until`` has enough repeats: their number, and the reason ``why``.
    "repeats_end": {
        "time": fields.NUMBER,
        "case": fields.TEXT,
        "repeats": fields.INTEGER,
        "why": fields.TEXT,
        # The 95 % interval of the median over the median; null with fewer than six launches.
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
        # The requested binding and hosts of the ranks.
        "asked": fields.OBJECT | fields.ABSENT,
        # The only repeat of its cases that the job runs; absent if it runs all of them.
        "repeat": fields.INTEGER | fields.ABSENT,
        # If cases have a job on each host: the number of the job's rank 0 among all their ranks.
        "first_rank": fields.INTEGER | fields.ABSENT,
    },
    "rank_lost": {
        "time": fields.NUMBER,
        "job": fields.INTEGER,
        "rank": _INTEGER_OR_NONE,
        "host": fields.TEXT,
        "reason": fields.TEXT,
    },
    # The first rank has started a case. The time in ``case_start`` is that of the rank's clock.
    "case_begin": {
        "time": fields.NUMBER,
        "case": fields.TEXT,
    },
    "case_judged": {
        "time": fields.NUMBER,
        "case": fields.TEXT,
        # If a case has a job on each host: the job that the reason refers to.
        "job": fields.INTEGER | fields.ABSENT,
        "status": fields.TEXT,
        "reason": _TEXT_OR_NONE,
        "expectations": fields.LIST,
        "traceback": _TEXT_OR_NONE | fields.ABSENT,
        # The ranks and hosts that were slow for a long time.
        "stragglers": fields.LIST | fields.ABSENT,
    },
    "job_end": {
        "time": fields.NUMBER,
        "job": fields.INTEGER,
        "reason": _TEXT_OR_NONE,
        "status": _INTEGER_OR_NONE,
        # The number of unauthenticated connections that were rejected.
        "strangers": fields.INTEGER,
    },
    "run_end": {
        "time": fields.NUMBER,
        "verdict": fields.TEXT,
        "exit_code": fields.INTEGER,
        "errors": fields.LIST,
        "findings": fields.LIST,
        # The load of the console's machine after the run; ``load`` in the environment is before it.
        "load": fields.NUMBER | fields.ABSENT,
    },
}
CASE_FIELDS: Fields = {
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
    # The ranks of each job, if the case has a job on each host.
    "shares": fields.LIST | fields.ABSENT,
    # See `SCALED_FIELDS`.
    "scaled": fields.OBJECT | fields.ABSENT,
}
"""A case in ``run_start``, with all facts that readers of a run need, without the catalog."""

SCALED_FIELDS: Fields = {"of": fields.TEXT, "work": fields.TEXT, "throughput": _TEXT_OR_NONE}
"""The series of a case that runs on several numbers of ranks.

``of`` is the case's id without its number of ranks, and ``work`` one of `SCALING_MODES`.
``throughput`` is the metric of the work over time; null: the work is the same for all numbers of
ranks, or in proportion to them.
"""
SCALING_MODES = frozenset(get_args(ScalingMode))
METRIC_FIELDS: Fields = {
    "name": fields.TEXT,
    "unit": fields.TEXT,
    "better": fields.TEXT,
    "fold": fields.TEXT,
    "part_of": _TEXT_OR_NONE | fields.ABSENT,
    # Whether a rank may wait for other ranks in this part.
    "waits": fields.FLAG | fields.ABSENT,
}
"""A metric of a case in ``run_start``."""
EXPECTATION_FIELDS: Fields = {
    "metric": fields.TEXT,
    "op": fields.TEXT,
    "limit": fields.NUMBER | fields.NULL,
    "expression": fields.TEXT | fields.ABSENT,
    "reference": fields.OBJECT | fields.ABSENT,
    # The reason why it is not judged: the suite has no reference for the run's system.
    "skipped": fields.TEXT | fields.ABSENT,
}
REFERENCE_FIELDS: Fields = {
    "value": fields.NUMBER,
    "unit": fields.TEXT,
    "lower": fields.NUMBER | fields.NULL,
    "upper": fields.NUMBER | fields.NULL,
    "system": _TEXT_OR_NONE,
}
"""The reference that the limit of an expectation follows from.

``lower`` and ``upper`` are the allowed deviations, as shares of the value; null: no bound.
"""
OUTCOME_FIELDS: Fields = {
    **{name: types for name, types in EXPECTATION_FIELDS.items() if name != "skipped"},
    "value": fields.NUMBER | fields.NULL,
    "status": fields.TEXT,
    "reason": fields.TEXT | fields.ABSENT,
}
"""An expectation of a case and its outcome, in ``case_judged``.

A limit is null until its ``expression`` of metrics of cases is evaluated, and if the expectation is
skipped.
"""
STRAGGLER_FIELDS: Fields = {
    "rank": _INTEGER_OR_NONE,
    "host": fields.TEXT,
    "ratio": fields.NUMBER,
    "seconds": fields.NUMBER,
    "since": fields.NUMBER,
    "cause": fields.FLAG,
}
"""A slow rank, or a slow host (``rank`` is null), in ``case_judged``.

``cause`` is false if it may only have waited for a slow rank.
"""
UNTIL_FIELDS: Fields = {"interval": fields.NUMBER, "max_time": fields.NUMBER}
"""The width of the interval of a case's median at which repeats end, and their longest seconds."""
REPEATS_END_REASONS = {"interval", "max_time", "repeats", "check"}
"""The reasons to end repeats: one of `UNTIL_FIELDS`, the maximum of repeats, or a failed check."""
FOLDS = frozenset(get_args(Fold))
BETTER = frozenset(get_args(Better))
OPS = {"max", "min"}


def make_run_event(kind: str, **values: Any) -> Event:
    """Return an event of the console with the current time.

    Raises:
        EventError: The kind is unknown, or a field is missing, unknown or of a wrong type.
    """
    json_values = {name: _to_json(value) for name, value in values.items()}
    event = {"event": kind, "time": fields.now(), **json_values}
    expected_fields = FIELDS.get(kind)
    if expected_fields is None:
        raise EventError(f"unknown event {kind!r}")
    check_fields(kind, event, expected_fields)
    unknown_names = sorted(values.keys() - expected_fields.keys())
    if unknown_names:
        raise EventError(f"{kind}: unknown field {unknown_names[0]!r}")
    for case in event["cases"] if kind == "run_start" else ():
        check_fields("a case of run_start", case, CASE_FIELDS)
    return event


def _to_json(value: Any) -> Any:
    """Return the text of a status, and other values unchanged."""
    return value.value if isinstance(value, StrEnum) else value


def check_run_event(event: Mapping[str, Any]) -> None:
    """Check all parts of a recorded event, because any user may have written the log.

    Raises:
        EventError: It is not an event of the console, or a part of it is of a wrong type.
    """
    kind = event["event"]
    if kind not in FIELDS:
        raise EventError(f"unknown event {kind[:40]!r}")
    check_fields(kind, event, FIELDS[kind])
    for name in _TEXT_LISTS & event.keys():
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
        _check_objects(kind, event["expectations"], OUTCOME_FIELDS)
        _check_objects(kind, event.get("stragglers", ()), STRAGGLER_FIELDS)
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


_TEXT_LISTS = {"argv", "errors", "findings"}


def _check_case(case: Mapping[str, Any]) -> None:
    kind = "a case of run_start"
    check_fields(kind, case, CASE_FIELDS)
    check_items(kind, "checks", case["checks"], fields.TEXT)
    check_items(kind, "places", case["places"], fields.OBJECT)
    check_items(kind, "shares", case.get("shares", ()), fields.INTEGER)
    _check_objects(kind, case["metrics"], METRIC_FIELDS)
    for metric in case["metrics"]:
        _check_word(kind, metric["fold"], FOLDS)
        _check_word(kind, metric["better"], BETTER)
    _check_objects(kind, case["expect"], EXPECTATION_FIELDS)
    _check_references(kind, case["expect"])
    if "scaled" in case:
        _check_objects(kind, [case["scaled"]], SCALED_FIELDS)
        _check_word(kind, case["scaled"]["work"], SCALING_MODES)
    if "until" in case:
        _check_objects(kind, [case["until"]], UNTIL_FIELDS)
    if case["np"] < 1 or case["repeat"] < 1:
        raise EventError(f"{kind}: np and repeat are at least 1")


def _check_references(kind: str, expectations: Iterable[Mapping[str, Any]]) -> None:
    for expectation in expectations:
        if "reference" not in expectation:
            continue
        _check_objects(kind, [expectation["reference"]], REFERENCE_FIELDS)
        if expectation["limit"] is None or not expectation["reference"]["value"] > 0:
            raise EventError(f"{kind}: a reference is above 0 and has a limit")


def _check_objects(kind: str, items: Iterable[Any], expected: Fields) -> None:
    for item in items:
        if type(item) is not dict or not item.keys() <= expected.keys():
            raise EventError(f"{kind}: {str(item)[:80]} is none of its parts")
        check_fields(kind, item, expected)


def _check_word(kind: str, word: str, choices: Collection[str]) -> None:
    if word not in choices:
        raise EventError(f"{kind}: {word[:40]!r} is none of {', '.join(sorted(choices))}")
