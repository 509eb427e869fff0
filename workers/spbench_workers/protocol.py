"""The rank events, ``spbench.events/1``: what a rank tells the console, line by line.

One JSON object a line over one TCP connection a rank (or one file a rank, in a batch job). Every
event has ``event``, ``rank``, ``seq`` and ``time`` (seconds since the epoch, UTC); ``seq`` counts
from 0 without a gap, so that a lost line is seen. Standard library only: both sides import this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SCHEMA = "spbench.events/1"

ENV_COLLECTOR = "SPBENCH_COLLECTOR"
"""``host:port`` of the console's collector; several, separated by commas, are tried in order."""
ENV_TOKEN = "SPBENCH_TOKEN"
ENV_RUN = "SPBENCH_RUN"
"""The run's id, in the environment of every process of a run."""
ENV_EVENTS_DIR = "SPBENCH_EVENTS_DIR"
ENV_CASES = "SPBENCH_CASES"

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

Event = dict[str, Any]

_NUMBER = (int, float)
_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "hello": {"token": str, "host": str, "pid": int},
    "ready": {"size": int, "local_rank": int, "cpus": list, "device": str, "versions": dict},
    "case_start": {"case": str, "repeat": int},
    "progress": {"case": str, "phase": str, "done": int, "total": int},
    "samples": {"case": str, "repeat": int, "metric": str, "values": list},
    "check": {"case": str, "repeat": int, "name": str, "passed": bool},
    "metric": {"case": str, "repeat": int, "name": str, "value": (*_NUMBER, type(None))},
    "log": {"level": str, "message": str},
    "case_end": {"case": str, "repeat": int, "status": str},
    "heartbeat": {},
    "bye": {},
}
KINDS = tuple(_FIELDS)


class ProtocolError(ValueError):
    """A line that is no rank event."""


def encode(event: Mapping[str, Any]) -> bytes:
    """Return the event as one line.

    Raises:
        ProtocolError: It has a NaN or an infinity, or the line would be longer than MAX_LINE.
    """
    try:
        text = json.dumps(event, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise ProtocolError(f"event {event.get('event')!r} is not JSON: {error}") from None
    line = text.encode() + b"\n"
    if len(line) > MAX_LINE:
        raise ProtocolError(f"event {event.get('event')!r} is {len(line)} bytes long")
    return line


def decode(line: bytes) -> Event:
    """Return the event of one line, its kind and the types of its fields checked.

    Raises:
        ProtocolError: The line is not JSON, not an object, of no known kind, or lacks a field.
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(event, dict):
        raise ProtocolError("not an object")
    fields = _FIELDS.get(event.get("event", ""))
    if fields is None:
        raise ProtocolError(f"unknown event {event.get('event')!r}")
    rank = event.get("rank")
    if not isinstance(event.get("seq"), int) or not isinstance(event.get("time"), _NUMBER):
        raise ProtocolError(f"{event['event']}: seq or time missing")
    if rank is not None and not isinstance(rank, int):
        raise ProtocolError(f"{event['event']}: rank is no number")
    for name, kind in fields.items():
        if not isinstance(event.get(name), kind):
            raise ProtocolError(f"{event['event']}: field {name!r} is missing or of a wrong type")
    return event
