"""The rank events, ``spbench.events/1``, with which ranks report to the console.

An event is a line with a JSON object, on one TCP connection per rank, or in one file per rank in a
batch job. Every event has ``event``, ``rank``, ``seq`` and ``time`` (seconds since the epoch, UTC).
``seq`` counts from 0 without a gap, so that a lost line is detected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

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
from spbench_core.events.gpu_readings import check_gpu_readings
from spbench_core.events.statuses import RankStatus

SCHEMA = "spbench.events/1"

ENV_COLLECTOR = "SPBENCH_COLLECTOR"
"""``host:port`` of the console's collector, or several that are tried in order, with commas."""
ENV_TOKEN = "SPBENCH_TOKEN"
ENV_FAN_IN = "SPBENCH_FAN_IN"
"""``node``: the ranks of a node share the connection of a relay to the console."""
ENV_RUN = "SPBENCH_RUN"
"""The run's id, in the environment of every process of a run."""
ENV_EVENTS_DIR = "SPBENCH_EVENTS_DIR"
ENV_CASES = "SPBENCH_CASES"
ENV_HOST_LOAD = "SPBENCH_HOST_LOAD"
"""``off``: no rank reports the load of its host."""
ENV_DEVICE = "SPBENCH_DEVICE"
"""``cuda`` if a case of the job needs a GPU."""
ENV_KERNEL_LOADING = "CUDA_MODULE_LOADING"
"""CUDA's variable. It is ``EAGER`` if stages of a model communicate over NCCL: a kernel that is
loaded at its first launch may wait for the whole GPU, and so for a receive that was posted."""

MAX_LINE = 1 << 20
"""Bytes of the longest line, including its newline."""
MAX_HELLO = 4096
"""Bytes that a connection may send before its token has been checked."""
CONNECT_TIMEOUT = 5.0
"""Seconds."""
HEARTBEAT_INTERVAL = 1.0
"""Seconds."""
SILENCE_LIMIT = 10.0
"""Seconds without an event after which a rank counts as hung, by default."""
BATCH_INTERVAL = 0.1
"""The minimum of seconds between two batches of samples."""

ASLEEP = "asleep"
"""The word with which a rank reports that its main thread uses no CPU."""

_HEAD = {"seq": INTEGER, "time": NUMBER}
_RANK = {"rank": INTEGER}
_RANK_OR_NONE = {"rank": INTEGER | NULL}
_CASE = {**_HEAD, **_RANK, "case": TEXT}
_REPEAT = {**_CASE, "repeat": INTEGER}
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
    "case_start": _REPEAT,
    "progress": {
        **_CASE,
        "repeat": INTEGER | ABSENT,
        "phase": TEXT,
        "done": INTEGER,
        "total": INTEGER,
    },
    "samples": {**_REPEAT, "metric": TEXT, "values": LIST},
    "check": {
        **_REPEAT,
        "name": TEXT,
        "passed": FLAG,
        "max_abs_error": NUMBER | NULL | ABSENT,
        "tolerance": NUMBER | ABSENT,
        "detail": TEXT | ABSENT,
    },
    "metric": {
        **_REPEAT,
        "name": TEXT,
        "value": NUMBER | NULL,
        "labels": OBJECT | ABSENT,
        "measured_by": TEXT | ABSENT,
    },
    "device": {
        **_REPEAT,
        "device": TEXT,
        "reason": TEXT,
        "near": FLAG | NULL | ABSENT,
        "address": TEXT | NULL | ABSENT,
    },
    "choice": {**_REPEAT, "name": TEXT, "value": TEXT, "reason": TEXT},
    "log": {
        **_HEAD,
        **_RANK_OR_NONE,
        "level": TEXT,
        "message": TEXT,
        "traceback": TEXT | NULL | ABSENT,
    },
    "case_end": {
        **_REPEAT,
        "status": TEXT,
        "error": OBJECT | ABSENT,
        "disturbed": OBJECT | ABSENT,
    },
    "heartbeat": {**_HEAD, **_RANK_OR_NONE, "load": OBJECT | ABSENT, "gpus": LIST | ABSENT},
    "bye": {**_HEAD, **_RANK},
}
_ERROR: Fields = {
    "message": TEXT | ABSENT,
    "traceback": TEXT | NULL | ABSENT,
}
EVENT_KINDS = tuple(_FIELDS)
CASE_EVENTS = frozenset(kind for kind, fields in _FIELDS.items() if "case" in fields)
EVENTS_BEFORE_READY = frozenset({"hello", "log", "heartbeat"})
"""The events that a rank may send before MPI has assigned its number."""


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
    """Decode an event, and check its kind and the types of its fields.

    It is written for speed, because the console calls it for every line of every rank.

    Raises:
        EventError: The line is not a JSON object, the kind is unknown, a field is missing, or a
            number is not finite.
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
    """Check the kind of a rank event and the types of its fields and of their items.

    Raises:
        EventError: The kind is unknown, or a field is missing or of a wrong type.
    """
    kind = event.get("event")
    types_by_name = _FIELDS.get(kind) if type(kind) is str else None
    if types_by_name is None:
        raise EventError(f"unknown event {str(kind)[:40]!r}")
    for name, types in types_by_name.items():  # inlined `check_fields`, to save a call per line
        if type(event.get(name, MISSING)) not in types:
            raise EventError(f"{kind}: field {name!r} is missing or of a wrong type")
    if kind in _ITEM_CHECKS:
        _ITEM_CHECKS[kind](event)


def _check_samples(event: Event) -> None:
    check_items("samples", "values", event["values"], NUMBER)


def _check_ready(event: Event) -> None:
    check_items("ready", "cpus", event["cpus"], INTEGER)
    check_items("ready", "nodes", event.get("nodes", ()), INTEGER)


def _check_metric(event: Event) -> None:
    labels = event.get("labels", {})
    check_items("metric", "labels", labels.values(), TEXT | NUMBER | FLAG | NULL)
    reserved = _RESERVED_LABELS.intersection(labels)
    if reserved:
        raise EventError(f"metric: a label is called {min(reserved)!r}")


def _check_case_end(event: Event) -> None:
    if event["status"] not in (RankStatus.OK, RankStatus.ERROR):
        raise EventError(f"case_end: status {event['status'][:40]!r} is neither ok nor error")
    check_fields("the error of case_end", event.get("error", {}), _ERROR)
    check_items("case_end", "disturbed", event.get("disturbed", {}).values(), NUMBER)


def _check_heartbeat(event: Event) -> None:
    check_items("heartbeat", "load", event.get("load", {}).values(), NUMBER)
    if "gpus" in event:
        check_gpu_readings(event["gpus"])


_SPACE = " \t\r\n"
"""The white space of JSON."""
_RESERVED_LABELS = {"name", "value", "rank"}
"""The fields of a labelled value that are not labels."""
_ITEM_CHECKS: dict[str, Callable[[Event], None]] = {
    "samples": _check_samples,
    "ready": _check_ready,
    "metric": _check_metric,
    "case_end": _check_case_end,
    "heartbeat": _check_heartbeat,
}


def _parse_float(text: str) -> float:
    number = float(text)
    if number - number:  # infinity minus infinity is NaN, which is true
        raise ValueError(f"{text} is too large")
    return number


def _parse_int(text: str) -> int:
    _parse_float(text)  # raises if the number is too large for a float
    return int(text)


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


_LONG_LINE = 300
"""Bytes of the shortest line that can contain a whole number too large for a float."""
SHORT_JSON = json.JSONDecoder(parse_float=_parse_float, parse_constant=_reject_constant)
LONG_JSON = json.JSONDecoder(
    parse_float=_parse_float, parse_int=_parse_int, parse_constant=_reject_constant
)


@dataclass(frozen=True, slots=True)
class RankFacts:
    """Facts about a rank in its ``ready`` event. A new fact is a field here.

    Attributes:
        host: The name of its host.
        pid: Its process id.
        local_rank: Its number among the ranks of its host.
        device: The device of its host, such as ``cpu``.
        cpus: The CPUs that it may run on.
        nodes: The NUMA nodes of these CPUs.
        cores: The physical cores of these CPUs.
        numa: The NUMA node of all these CPUs; None if there are several.
        host_cpus: All CPUs of its host.
        processor: The name of its host's processor.
        threads: Threads that it computes with.
        fabric: The network adapters of its host, or ``tcp``.
        versions: Versions of its software by name; None if a package is not installed.
    """

    host: str
    pid: int | None = None
    local_rank: int | None = None
    device: str | None = None
    cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    cores: int | None = None
    numa: int | None = None
    host_cpus: int | None = None
    processor: str | None = None
    threads: int | None = None
    fabric: str | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def from_event(cls, event: Mapping[str, Any], host: str) -> Self:
        """Return the facts in a ``ready`` event; ``host`` is the default host."""
        facts = {name: event[name] for name in _FACT_NAMES & event.keys()}
        lists = {name: tuple(facts.get(name, ())) for name in ("cpus", "nodes")}
        return cls(**{"host": host} | facts | lists)

    def to_fields(self) -> dict[str, Any]:
        """Return the facts as fields of a ``ready`` event."""
        return asdict(self)


_FACT_NAMES = frozenset(item.name for item in fields(RankFacts))
