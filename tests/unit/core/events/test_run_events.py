"""Events of the console: required fields and their types."""

import re

import pytest

from spbench_core.events.fields import ABSENT, EventError
from spbench_core.events.run_events import CASE_FIELDS, FIELDS, make_run_event
from support.sample_events import (
    case_judged,
    console_event,
    describe_case,
    job_end,
    job_start,
    repeats_end,
    retry,
    run_end,
    run_resumed,
    run_start,
)

LOST = {"event": "rank_lost", "time": 1.0, "job": 1, "rank": 1, "host": "node01", "reason": "dead"}
EVENTS = [
    run_start(),
    run_resumed("a"),
    retry("a"),
    repeats_end("a"),
    job_start(),
    console_event("case_begin", case="a"),
    case_judged(),
    job_end(),
    run_end(),
    LOST,
]
FIELDS_BY_KIND = {
    event["event"]: {k: v for k, v in event.items() if k != "event"} for event in EVENTS
}


def drop_time(kind):
    return {name: value for name, value in FIELDS_BY_KIND[kind].items() if name != "time"}


@pytest.mark.parametrize("kind", FIELDS)
def test_makes_events_with_kind_time_and_fields(kind):
    fields = drop_time(kind)
    event = make_run_event(kind, **fields)
    assert event.pop("time") > 0
    assert event == {"event": kind, **fields}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in FIELDS for name in drop_time(kind)]
)
def test_rejects_a_field_of_another_type(kind, name):
    invalid = drop_time(kind) | {name: {1.5}}
    with pytest.raises(EventError, match=f"{kind}: field '{name}' is missing or of a wrong type"):
        make_run_event(kind, **invalid)


REQUIRED = [name for name, types in CASE_FIELDS.items() if not types >= ABSENT]


@pytest.mark.parametrize("name", REQUIRED)
def test_rejects_a_case_that_lacks_a_field(name):
    case = describe_case()
    del case[name]
    fields = drop_time("run_start") | {"cases": [case]}
    with pytest.raises(EventError, match=f"a case of run_start: field '{name}'"):
        make_run_event("run_start", **fields)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("job_end", {"job": 1}, "job_end: field 'reason' is missing or of a wrong type"),
        ("job_end", drop_time("job_end") | {"why": ""}, "job_end: unknown field 'why'"),
        ("eclipse", {}, "unknown event 'eclipse'"),
    ],
)
def test_rejects_missing_and_unknown_fields(kind, fields, message):
    with pytest.raises(EventError, match=re.escape(message)):
        make_run_event(kind, **fields)
