import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.events.fields import EventError
from spbench_core.events.rank_events import EVENT_KINDS, MAX_LINE, decode, encode
from support.sample_events import RANK_EVENTS, rank_event

NAN = float("nan")
INFINITY = float("inf")

text = st.text(st.characters(codec="utf-8"), max_size=20)
number = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(text, part, max_size=3),
    max_leaves=8,
)


@st.composite
def random_events(draw):
    event = rank_event(
        draw(st.sampled_from(EVENT_KINDS)), draw(st.integers(0, 4095)), draw(st.integers(0, 2**40))
    )
    extra_fields = draw(st.dictionaries(text, anything, max_size=3))
    return {**extra_fields, **event}


@given(random_events())
def test_decode_inverts_encode(event):
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == event


@given(st.binary(max_size=60) | anything.map(lambda value: json.dumps(value).encode()))
def test_rejects_garbage_with_an_event_error(line):
    with pytest.raises(EventError):
        decode(line)


def test_each_kind_has_an_example():
    assert set(RANK_EVENTS) == set(EVENT_KINDS)


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [1.0, value]])
def test_does_not_encode_non_finite_numbers(value, wrap):
    with pytest.raises(EventError, match="samples"):
        encode(rank_event("samples", values=wrap(value)))


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_does_not_decode_non_finite_numbers(literal):
    line = json.dumps(rank_event("samples", values=[7.25])).replace("7.25", literal)
    with pytest.raises(EventError):
        decode(line.encode())


def test_encodes_lines_up_to_the_limit_and_no_longer():
    space = MAX_LINE - len(encode(rank_event("log", message="")))
    assert len(encode(rank_event("log", message="x" * space))) == MAX_LINE
    with pytest.raises(EventError, match=f"{MAX_LINE + 1} bytes"):
        encode(rank_event("log", message="x" * (space + 1)))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b'"hello"',
        b"{}",
        b'{"event": "party", "rank": 0, "seq": 0, "time": 1}',
        b'{"event": null, "rank": 0, "seq": 0, "time": 1}',
        b'{"event": [], "rank": 0, "seq": 0, "time": 1}',
        b'{"event": {}, "rank": 0, "seq": 0, "time": 1}',
        b'{"event": "bye", "rank": 0, "seq": 0, "time": 1',
        b"\xff\xfe\xfd",
        b'{"event": "bye", "rank": 0, "seq": ' + b"9" * 5000 + b', "time": 1}',
    ],
)
def test_rejects_a_line_that_is_not_an_event(line):
    with pytest.raises(EventError):
        decode(line)


@pytest.mark.parametrize("line", [b"[" * 500_000, b'{"a":' * 150_000])
def test_rejects_deeply_nested_lines(line):
    with pytest.raises(EventError):
        decode(line)


@pytest.mark.parametrize("name", ["event", "seq", "time"])
@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_rejects_an_event_without_a_common_field(kind, name):
    event = rank_event(kind)
    del event[name]
    with pytest.raises(EventError):
        decode(json.dumps(event).encode())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("hello", "token"),
        ("hello", "host"),
        ("hello", "pid"),
        ("ready", "size"),
        ("ready", "local_rank"),
        ("ready", "cpus"),
        ("ready", "device"),
        ("ready", "versions"),
        ("case_start", "case"),
        ("case_start", "repeat"),
        ("progress", "phase"),
        ("progress", "done"),
        ("progress", "total"),
        ("samples", "metric"),
        ("samples", "values"),
        ("check", "name"),
        ("check", "passed"),
        ("device", "device"),
        ("device", "reason"),
        ("log", "level"),
        ("log", "message"),
        ("case_end", "status"),
    ],
)
def test_names_a_missing_field(kind, name):
    event = rank_event(kind)
    del event[name]
    with pytest.raises(EventError, match=f"{kind}.*{name}"):
        decode(json.dumps(event).encode())


@pytest.mark.parametrize(
    ("kind", "name", "invalid"),
    [
        ("bye", "rank", "0"),
        ("bye", "rank", 0.5),
        ("bye", "seq", "0"),
        ("bye", "seq", None),
        ("bye", "time", "now"),
        ("hello", "token", 5),
        ("hello", "pid", "11"),
        ("ready", "cpus", "0-3"),
        ("ready", "versions", []),
        ("case_start", "repeat", 0.5),
        ("samples", "values", {}),
        ("check", "passed", 1),
        ("metric", "value", "1.5"),
        ("metric", "labels", {"peer": [1]}),
        ("metric", "labels", {"value": 1}),
        ("ready", "cpus", ["0"]),
        ("ready", "fabric", 5),
        ("log", "traceback", 5),
        ("case_end", "error", {"message": 5}),
    ],
)
def test_rejects_a_field_of_another_type(kind, name, invalid):
    with pytest.raises(EventError):
        decode(json.dumps(rank_event(kind, **{name: invalid})).encode())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bye", "rank"),
        ("bye", "seq"),
        ("bye", "time"),
        ("hello", "pid"),
        ("ready", "size"),
        ("case_start", "repeat"),
        ("progress", "done"),
        ("metric", "value"),
    ],
)
def test_rejects_a_boolean_as_a_number(kind, name):
    with pytest.raises(EventError):
        decode(json.dumps(rank_event(kind, **{name: True})).encode())


@pytest.mark.parametrize("values", [["1.0"], [None], [True], [[1.0]], [{}], [10**400]])
def test_rejects_samples_that_are_not_numbers(values):
    with pytest.raises(EventError):
        decode(json.dumps(rank_event("samples", values=values)).encode())


@pytest.mark.parametrize("kind", [kind for kind in EVENT_KINDS if "case" in RANK_EVENTS[kind]])
def test_case_events_require_a_rank(kind):
    event = rank_event(kind, rank=None)
    with pytest.raises(EventError):
        decode(json.dumps(event).encode())


@pytest.mark.parametrize("kind", ["hello", "heartbeat", "log"])
def test_events_before_mpi_may_lack_a_rank(kind):
    assert decode(encode(rank_event(kind, rank=None)))["rank"] is None


def test_a_metric_may_have_no_value():
    assert decode(encode(rank_event("metric", value=None)))["value"] is None


def test_a_heartbeat_has_at_most_100_bytes():
    # The largest job after ten million events, with a late time of this century.
    heartbeat = {"event": "heartbeat", "rank": 4095, "seq": 10**7, "time": 4102444799.999999}
    assert len(encode(heartbeat)) <= 100
