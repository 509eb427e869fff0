"""Fields of events with their exact types, and the time of an event.

A bool does not count as a number.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

Event = dict[str, Any]
"""An event of a rank or of a run, as JSON decodes it."""
Types = frozenset[type]
Fields = Mapping[str, Types]

TEXT: Types = frozenset({str})
INTEGER: Types = frozenset({int})
NUMBER: Types = frozenset({int, float})
FLAG: Types = frozenset({bool})
LIST: Types = frozenset({list})
OBJECT: Types = frozenset({dict})
NULL: Types = frozenset({type(None)})
MISSING = object()
ABSENT: Types = frozenset({type(MISSING)})
"""The type of a missing field, which no JSON value has."""
_MONOTONIC_EPOCH = time.time() - time.monotonic()
"""Seconds since the epoch at which the monotonic clock was 0, computed when the process starts."""


class EventError(ValueError):
    """A line or an object that is not a valid event."""


def now() -> float:
    """Return the time of an event: seconds since the epoch, UTC, which never decrease.

    The system's clock is read once, when the process starts. After that the monotonic clock counts,
    so that durations stay right if the system's clock is set.
    """
    return round(_MONOTONIC_EPOCH + time.monotonic(), 6)


def check_fields(kind: str, event: Mapping[str, Any], fields: Fields) -> None:
    """Check that an event, or an object in one, has its fields.

    Raises:
        EventError: A field is missing or of a wrong type.
    """
    for name, types in fields.items():
        if type(event.get(name, MISSING)) not in types:
            raise EventError(f"{kind}: field {name!r} is missing or of a wrong type")


def check_items(kind: str, name: str, items: Iterable[Any], types: Types) -> None:
    """Check the types of the items of a field.

    Raises:
        EventError: An item is of another type.
    """
    if not types.issuperset(map(type, items)):
        raise EventError(f"{kind}: field {name!r} has something of a wrong type in it")
