"""Logs of events that are read while a run appends to them, and afterwards."""

import json
import os

import pytest

from spbench.errors import UsageError
from spbench.record.runs.event_log import EventLog, encode
from spbench.record.runs.follow import EventTail, RecordedEvents
from support.sample_events import (
    case_judged,
    console_event,
    describe_case,
    job_start,
    make_complete_run,
    rank_event,
    run_end,
    run_start,
)


def make_event(number, **fields):
    return {"event": "note", "time": 1000.0 + number, "number": number, **fields}


def encode_lines(*numbers):
    return b"".join(encode(make_event(number)) for number in numbers)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def read_numbers(tail, *limit):
    return [event["number"] for event in tail.read(*limit)]


def test_reads_appended_events_once(path):
    tail = EventTail(path)
    log = EventLog(path)
    log.append(encode_lines(0, 1))
    assert read_numbers(tail) == [0, 1]
    assert read_numbers(tail) == []
    log.append(encode_lines(2))
    assert read_numbers(tail) == [2]
    log.close()


def test_reads_events_as_written(path):
    events = [make_event(0, nested={"a": [1, 2.5, None]}, text='ü,"\n]'), make_event(1)]
    path.write_bytes(b"".join(map(encode, events)))
    assert EventTail(path).read() == events


def test_missing_log_reads_as_empty(path):
    tail = EventTail(path)
    assert read_numbers(tail) == []
    assert tail.at_end
    path.write_bytes(encode_lines(0))
    assert read_numbers(tail) == [0]


def test_incomplete_line_is_read_once_complete(path):
    content = encode_lines(0, 1)
    for cut in range(len(encode_lines(0)), len(content)):
        tail = EventTail(path)
        path.write_bytes(content[:cut])
        assert read_numbers(tail) == [0]
        assert tail.at_end
        path.write_bytes(content)
        assert read_numbers(tail) == [1]


@pytest.mark.parametrize("limit", [1, 7, 40, 64, 65, 1000])
def test_each_read_stays_within_the_limit(path, limit):
    path.write_bytes(encode_lines(*range(20)))
    tail = EventTail(path)
    numbers = []
    reads = 0
    while not tail.at_end:
        batch = read_numbers(tail, limit)
        assert len(batch) <= limit // len(encode_lines(0)) + 1
        numbers += batch
        reads += 1
    assert numbers == list(range(20))
    assert reads == path.stat().st_size // limit + 1


def test_at_end_is_set_once_all_is_read(path):
    path.write_bytes(encode_lines(0, 1))
    tail = EventTail(path)
    assert not tail.at_end
    tail.read(len(encode_lines(0)) + 2)
    assert not tail.at_end
    tail.read(len(encode_lines(0)))
    assert tail.at_end


def test_line_longer_than_the_limit_takes_several_reads(path):
    long = make_event(0, text="x" * 1000)
    path.write_bytes(encode(long) + encode_lines(1))
    tail = EventTail(path)
    assert [tail.read(300) for _ in range(3)] == [[], [], []]
    assert tail.read(300) == [long, make_event(1)]


INVALID_LINES = [
    b"",
    b"{",
    b"nonsense",
    b"[1, 2]",
    b"1",
    b"null",
    b"\xff\xfe",
    b'{"event": 1, "time": 1.0}',
    b'{"event": "log", "time": "now"}',
    b'{"time": 1.0}',
    encode_lines(5).strip() + b"," + encode_lines(6).strip(),
    b"[" * 100_000,
]


@pytest.mark.parametrize(
    "invalid", INVALID_LINES, ids=lambda line: line[:12].decode(errors="replace")
)
def test_skips_invalid_line_and_reports_its_number(path, invalid):
    path.write_bytes(encode_lines(0, 1) + invalid + b"\n" + encode_lines(2))
    tail = EventTail(path)
    assert tail.skipped_message is None
    assert read_numbers(tail) == [0, 1, 2]
    assert tail.skipped_message == (
        f"{path}:3: this is no event of a run; what it reported was left out"
    )


def test_reports_first_invalid_line_and_counts_the_others(path):
    path.write_bytes(
        encode_lines(*range(50)) + b"nonsense\n" + encode_lines(50) + b"nonsense\n" * 11
    )
    for limit in (len(encode_lines(10)), 1000, 1 << 20):
        tail = EventTail(path)
        numbers = []
        while not tail.at_end:
            numbers += read_numbers(tail, limit)
        assert numbers == list(range(51))
        assert tail.skipped_message == (
            f"{path}:51: this is no event of a run, nor are 11 further lines; "
            "what they reported was left out"
        )


def test_event_split_over_two_lines_is_skipped(path, messages):
    half = json.dumps(make_event(0)).encode()
    cut = half.index(b",")
    path.write_bytes(half[:cut] + b"\n" + half[cut + 1 :] + b"\n")
    tail = EventTail(path)
    assert read_numbers(tail) == []
    messages.check(tail.skipped_message)


@pytest.mark.parametrize(
    "invalid",
    [
        rank_event("samples", case="unknown"),
        rank_event("samples", repeat=1),
        rank_event("samples", repeat=-1),
        rank_event("samples", values=["1"]),
        rank_event("samples", values=[float("nan")]),
        rank_event("samples", values=[10**400]),
        rank_event("samples", -1),
        rank_event("samples") | {"job": 7},
        rank_event("samples") | {"job": []},
        rank_event("ready", cpus=["0"]),
        run_start(),
        run_start(describe_case(np=0)),
        job_start("unknown"),
        {**job_start(), "job": "1"},
        case_judged("unknown"),
        case_judged("a", "splendid"),
        case_judged(expectations=[{"metric": "time_ms"}]),
        run_end("splendid"),
        run_end(errors=[1]),
        console_event("job_end", job=7, reason=None, status=0, strangers=0),
    ],
    ids=lambda event: event["event"],
)
def test_skips_event_that_contradicts_its_run(path, invalid):
    valid_events = [
        {"job": 1, **event} if "seq" in event else event for event in make_complete_run()
    ]
    events = [*valid_events[:6], {"job": 1, **invalid}, *valid_events[6:]]
    path.write_bytes(b"".join(json.dumps(event).encode() + b"\n" for event in events))
    recorded = RecordedEvents(path)
    assert list(recorded) == valid_events
    assert recorded.skipped_message.startswith(f"{path}:7: ")


def test_skips_events_before_the_start_of_the_run(path):
    path.write_bytes(encode(case_judged()) + encode(run_start()) + encode(case_judged()))
    recorded = RecordedEvents(path)
    assert [event["event"] for event in recorded] == ["run_start", "case_judged"]
    assert recorded.skipped_message.startswith(f"{path}:1: ")


def test_overlong_line_is_not_kept_in_memory(path):
    path.write_bytes(encode_lines(0) + b"x" * 5000 + b"\n" + encode_lines(1))
    tail = EventTail(path, max_line_bytes=1000)
    numbers = []
    while not tail.at_end:
        numbers += read_numbers(tail, 300)
        assert len(tail._incomplete) <= 1300
    assert numbers == [0, 1]


def test_rejects_a_pipe_at_once(path, messages):
    os.mkfifo(path)
    with messages.raises(UsageError):
        EventTail(path).read()


def test_rejects_an_unreadable_log(tmp_path, messages):
    with messages.raises(UsageError):
        EventTail(tmp_path).read()


def test_recorded_log_is_read_to_its_end(path):
    assert list(RecordedEvents(path)) == []
    path.write_bytes(encode_lines(*range(10_000)) + encode_lines(10_000)[:-3])
    assert [event["number"] for event in RecordedEvents(path)] == list(range(10_000))
