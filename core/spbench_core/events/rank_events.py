"""The rank events, ``spbench.events/1``: what a rank tells the console, line by line.

One JSON object a line over one TCP connection a rank (or one file a rank, in a batch job). Every
event has ``event``, ``rank``, ``seq`` and ``time`` (seconds since the epoch, UTC); ``seq`` counts
from 0 without a gap, so that a lost line is seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from spbench_core.events.fields import (
    ABSENT,
    FLAG,
    INTEGER,
    LIST,
    MISSING,
    NULL,
    NUMBER,
    OBJECT,
    TEXT,
    Event,
    EventError,
    Fields,
    check_fields,
    check_items,
)
from spbench_core.events.statuses import RankStatus

SCHEMA = "spbench.events/1"

ENV_COLLECTOR = "SPBENCH_COLLECTOR"
"""``host:port`` of the console's collector; several, separated by commas, are tried in order."""
ENV_TOKEN = "SPBENCH_TOKEN"
ENV_FAN_IN = "SPBENCH_FAN_IN"
"""``node``: the ranks of a node share one connection to the console, that of a relay."""
ENV_RUN = "SPBENCH_RUN"
"""The run's id, in the environment of every process of a run."""
ENV_EVENTS_DIR = "SPBENCH_EVENTS_DIR"
ENV_CASES = "SPBENCH_CASES"
ENV_HOST_LOAD = "SPBENCH_HOST_LOAD"
"""``off``: no rank says the load of its host."""
ENV_DEVICE = "SPBENCH_DEVICE"
"""``cuda`` in the ranks' environment, where a case of the job asks for a GPU."""
ENV_KERNEL_LOADING = "CUDA_MODULE_LOADING"
"""CUDA's own; ``EAGER`` where stages of a model talk over NCCL: a kernel that is loaded when it is
first launched may wait for the whole GPU, and so for a receive that is posted."""

MAX_LINE = 1 << 20
"""Bytes of the longest line, its newline included."""
MAX_HELLO = 4096
"""Bytes that a connection may send before it has shown its token."""
CONNECT_TIMEOUT = 5.0
HEARTBEAT_INTERVAL = 1.0
SILENCE_LIMIT = 10.0
BATCH_INTERVAL = 0.1
"""Seconds between two batches of samples, at least."""

ASLEEP = "asleep"
"""How a rank that is asked where it stands says that its main thread uses no CPU."""

_HEAD = {"seq": INTEGER, "time": NUMBER}
_RANK = {"rank": INTEGER}
_RANK_OR_NONE = {"rank": INTEGER | NULL}
_OF_CASE = {**_HEAD, **_RANK, "case": TEXT}
_OF_REPEAT = {**_OF_CASE, "repeat": INTEGER}
_FIELDS: dict[str, Fields] = {
    "hello": {**_HEAD, **_RANK_OR_NONE, "token": TEXT, "host": TEXT, "pid": INTEGER},
    "ready": {
        **_HEAD,
        **_RANK,
        "size": INTEGER,
        "local_rank": INTEGER,
        "cpus": LIST,
        "nodes": LIST | ABSENT,
        "cores": INTEGER | ABSENT,
        "host_cpus": INTEGER | NULL | ABSENT,
        "processor": TEXT | NULL | ABSENT,
        "device": TEXT,
        "versions": OBJECT,
        "host": TEXT | ABSENT,
        "pid": INTEGER | ABSENT,
        "numa": INTEGER | NULL | ABSENT,
        "threads": INTEGER | NULL | ABSENT,
        "fabric": TEXT | NULL | ABSENT,
    },
    "case_start": _OF_REPEAT,
    "progress": {
        **_OF_CASE,
        "repeat": INTEGER | ABSENT,
        "phase": TEXT,
        "done": INTEGER,
        "total": INTEGER,
    },
    "samples": {**_OF_REPEAT, "metric": TEXT, "values": LIST},
    "check": {
        **_OF_REPEAT,
        "name": TEXT,
        "passed": FLAG,
        "max_abs_error": NUMBER | NULL | ABSENT,
        "tolerance": NUMBER | ABSENT,
        "detail": TEXT | ABSENT,
    },
    "metric": {
        **_OF_REPEAT,
        "name": TEXT,
        "value": NUMBER | NULL,
        "labels": OBJECT | ABSENT,
        "measured_by": TEXT | ABSENT,
    },
    "device": {
        **_OF_REPEAT,
        "device": TEXT,
        "reason": TEXT,
        "near": FLAG | NULL | ABSENT,
    },
    "choice": {**_OF_REPEAT, "name": TEXT, "value": TEXT, "reason": TEXT},
    "log": {
        **_HEAD,
        **_RANK_OR_NONE,
        "level": TEXT,
        "message": TEXT,
        "traceback": TEXT | NULL | ABSENT,
    },
    "case_end": {
        **_OF_REPEAT,
        "status": TEXT,
        "error": OBJECT | ABSENT,
        "disturbed": OBJECT | ABSENT,
    },
    "heartbeat": {**_HEAD, **_RANK_OR_NONE, "load": OBJECT | ABSENT},
    "bye": {**_HEAD, **_RANK},
}
_ERROR: Fields = {
    "message": TEXT | ABSENT,
    "traceback": TEXT | NULL | ABSENT,
}
EVENT_KINDS = tuple(_FIELDS)
CASE_EVENTS = frozenset(kind for kind, fields in _FIELDS.items() if "case" in fields)
EVENTS_BEFORE_READY = frozenset({"hello", "log", "heartbeat"})
"""What a rank may say before MPI has told it its number."""


def encode(event: Mapping[str, Any]) -> bytes:
    """Return the event as one line.

    Raises:
        EventError: The event has a NaN or an infinity, or the line would be longer than MAX_LINE.
    """
    try:
        text = json.dumps(event, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise EventError(f"event {event.get('event')!r} is not JSON: {error}") from None
    line = text.encode() + b"\n"
    if len(line) > MAX_LINE:
        raise EventError(f"event {event.get('event')!r} is {len(line)} bytes long")
    return line


def decode(line: bytes) -> Event:
    """Return the event of one line, its kind and the types of its fields checked.

    The console does this for every line of every rank, so it is written for speed.

    Raises:
        EventError: The line is not JSON, not an object, of no known kind, lacks a field, or has
            a number that is not finite.
    """
    try:
        text = line.decode()
        event, end = (SHORT_JSON if len(line) < _LONG_LINE else LONG_JSON).raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise EventError(f"not JSON: {error}") from None
    if end != len(text) and text[end:].strip(_SPACE):
        raise EventError("not JSON: there is more than one value")
    if type(event) is not dict:
        raise EventError("not an object")
    check_rank_event(event)
    return event


def check_rank_event(event: Event) -> None:
    """Check the kind of a rank event, the types of its fields, and what is in them.

    Raises:
        EventError: The kind is not known, or something is missing or of a wrong type.
    """
    kind = event.get("event")
    fields = _FIELDS.get(kind) if type(kind) is str else None
    if fields is None:
        raise EventError(f"unknown event {str(kind)[:40]!r}")
    for name, types in fields.items():  # not by `check`: a call more for each line
        if type(event.get(name, MISSING)) not in types:
            raise EventError(f"{kind}: field {name!r} is missing or of a wrong type")
    if kind in _CONTENTS:
        _CONTENTS[kind](event)


def _check_samples(event: Event) -> None:
    check_items("samples", "values", event["values"], NUMBER)


def _check_ready(event: Event) -> None:
    check_items("ready", "cpus", event["cpus"], INTEGER)
    check_items("ready", "nodes", event.get("nodes", ()), INTEGER)


def _check_metric(event: Event) -> None:
    labels = event.get("labels", {})
    check_items("metric", "labels", labels.values(), TEXT | NUMBER | FLAG | NULL)
    taken = _ROW.intersection(labels)
    if taken:
        raise EventError(f"metric: a label is called {min(taken)!r}")


def _check_case_end(event: Event) -> None:
    if event["status"] not in (RankStatus.OK, RankStatus.ERROR):
        raise EventError(f"case_end: status {event['status'][:40]!r} is neither ok nor error")
    check_fields("the error of case_end", event.get("error", {}), _ERROR)
    check_items("case_end", "disturbed", event.get("disturbed", {}).values(), NUMBER)


def _check_heartbeat(event: Event) -> None:
    check_items("heartbeat", "load", event.get("load", {}).values(), NUMBER)


_SPACE = " \t\r\n"
"""The white space of JSON."""
_ROW = {"name", "value", "rank"}
"""Of a labelled value, what stands beside its labels."""
_CONTENTS: dict[str, Callable[[Event], None]] = {
    "samples": _check_samples,
    "ready": _check_ready,
    "metric": _check_metric,
    "case_end": _check_case_end,
    "heartbeat": _check_heartbeat,
}


def _finite(text: str) -> float:
    number = float(text)
    if number - number:  # an infinity less itself is NaN, which is true
        raise ValueError(f"{text} is too large")
    return number


def _whole(text: str) -> int:
    _finite(text)
    return int(text)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


_LONG_LINE = 300
"""Bytes of a line that may hold a whole number beyond the floats; in shorter ones none fits."""
SHORT_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
LONG_JSON = json.JSONDecoder(parse_float=_finite, parse_int=_whole, parse_constant=_refuse_constant)
