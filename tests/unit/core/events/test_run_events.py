"""The console's own events: their fields, and that what is said has them."""

import re

import pytest

from spbench_core.events.fields import ABSENT, EventError
from spbench_core.events.run_events import CASE, FIELDS, make_run_event
from unit.events import (
    console_event,
    described,
    job_end,
    job_start,
    judged,
    repeats_end,
    resumed,
    retry,
    run_end,
    run_start,
)

LOST = {"event": "rank_lost", "time": 1.0, "job": 1, "rank": 1, "host": "node01", "reason": "dead"}
EVENTS = [
    run_start(),
    resumed("a"),
    retry("a"),
    repeats_end("a"),
    job_start(),
    console_event("case_begin", case="a"),
    judged(),
    job_end(),
    run_end(),
    LOST,
]
WHOLE = {event["event"]: {k: v for k, v in event.items() if k != "event"} for event in EVENTS}


def without_time(kind):
    return {name: value for name, value in WHOLE[kind].items() if name != "time"}


@pytest.mark.parametrize("kind", FIELDS)
def test_an_event_has_its_kind_its_time_and_its_fields(kind):
    fields = without_time(kind)
    event = make_run_event(kind, **fields)
    assert event.pop("time") > 0
    assert event == {"event": kind, **fields}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in FIELDS for name in without_time(kind)]
)
def test_a_field_of_another_type_is_refused(kind, name):
    wrong = without_time(kind) | {name: {1.5}}
    with pytest.raises(EventError, match=f"{kind}: field '{name}' is missing or of a wrong type"):
        make_run_event(kind, **wrong)


ALWAYS = [name for name, types in CASE.items() if not types >= ABSENT]


@pytest.mark.parametrize("name", ALWAYS)
def test_a_case_of_a_run_without_a_field_is_refused(name):
    case = described()
    del case[name]
    fields = without_time("run_start") | {"cases": [case]}
    with pytest.raises(EventError, match=f"a case of run_start: field '{name}'"):
        make_run_event("run_start", **fields)


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        ("job_end", {"job": 1}, "job_end: field 'reason' is missing or of a wrong type"),
        ("job_end", without_time("job_end") | {"why": ""}, "job_end: unknown field 'why'"),
        ("eclipse", {}, "unknown event 'eclipse'"),
    ],
)
def test_an_event_with_a_field_too_few_or_too_many_is_refused(kind, fields, sentence):
    with pytest.raises(EventError, match=re.escape(sentence)):
        make_run_event(kind, **fields)
