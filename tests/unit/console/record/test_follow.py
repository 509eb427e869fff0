import json
import os

import pytest

from spbench.errors import UsageError
from spbench.record.runs import follow
from spbench.record.runs.event_log import EventLog, encode
from spbench.record.runs.follow import EventTail, RecordedEvents
from unit.events import (
    console_event,
    described,
    job_start,
    judged,
    rank_event,
    run_end,
    run_start,
    whole_run,
)


def event(number, **fields):
    return {"event": "note", "time": 1000.0 + number, "number": number, **fields}


def lines(*numbers):
    return b"".join(encode(event(number)) for number in numbers)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def read(tail, *limit):
    return [event["number"] for event in tail.read(*limit)]


def test_what_is_appended_is_read_once(path):
    tail = EventTail(path)
    log = EventLog(path)
    log.append(lines(0, 1))
    assert read(tail) == [0, 1]
    assert read(tail) == []
    log.append(lines(2))
    assert read(tail) == [2]
    log.close()


def test_events_are_as_they_were_written(path):
    told = [event(0, nested={"a": [1, 2.5, None]}, text='ü,"\n]'), event(1)]
    path.write_bytes(b"".join(map(encode, told)))
    assert EventTail(path).read() == told


def test_a_log_that_is_not_there_yet_is_empty(path):
    tail = EventTail(path)
    assert read(tail) == []
    assert tail.at_end
    path.write_bytes(lines(0))
    assert read(tail) == [0]


def test_a_torn_line_waits_for_its_rest(path):
    whole = lines(0, 1)
    for cut in range(len(lines(0)), len(whole)):
        tail = EventTail(path)
        path.write_bytes(whole[:cut])
        assert read(tail) == [0]
        assert tail.at_end
        path.write_bytes(whole)
        assert read(tail) == [1]


@pytest.mark.parametrize("limit", [1, 7, 40, 64, 65, 1000])
def test_a_look_reads_no_more_than_it_may(path, limit):
    path.write_bytes(lines(*range(20)))
    tail = EventTail(path)
    found = []
    looks = 0
    while not tail.at_end:
        new = read(tail, limit)
        assert len(new) <= limit // len(lines(0)) + 1
        found, looks = found + new, looks + 1
    assert found == list(range(20))
    assert looks == path.stat().st_size // limit + 1


def test_the_end_is_told(path):
    path.write_bytes(lines(0, 1))
    tail = EventTail(path)
    assert not tail.at_end
    tail.read(len(lines(0)) + 2)
    assert not tail.at_end
    tail.read(len(lines(0)))
    assert tail.at_end


def test_a_line_longer_than_a_look_is_read_in_several(path):
    long = event(0, text="x" * 1000)
    path.write_bytes(encode(long) + lines(1))
    tail = EventTail(path)
    assert [tail.read(300) for _ in range(3)] == [[], [], []]
    assert tail.read(300) == [long, event(1)]


NO_EVENTS = [
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
    lines(5).strip() + b"," + lines(6).strip(),
    b"[" * 100_000,
]


@pytest.mark.parametrize("wrong", NO_EVENTS, ids=lambda line: line[:12].decode(errors="replace"))
def test_a_line_that_is_no_event_is_left_out_and_told_with_its_place(path, wrong):
    path.write_bytes(lines(0, 1) + wrong + b"\n" + lines(2))
    tail = EventTail(path)
    assert tail.skipped is None
    assert read(tail) == [0, 1, 2]
    assert tail.skipped == (f"{path}:3: this is no event of a run; what it reported was left out")


def test_the_place_counts_all_lines_before_and_the_others_are_counted(path):
    path.write_bytes(lines(*range(50)) + b"nonsense\n" + lines(50) + b"nonsense\n" * 11)
    for limit in (len(lines(10)), 1000, 1 << 20):
        tail = EventTail(path)
        found = []
        while not tail.at_end:
            found += read(tail, limit)
        assert found == list(range(51))
        assert tail.skipped == (
            f"{path}:51: this is no event of a run, nor are 11 further lines; "
            "what they reported was left out"
        )


def test_two_lines_that_are_an_event_together_are_two_that_are_none(path):
    half = json.dumps(event(0)).encode()
    cut = half.index(b",")
    path.write_bytes(half[:cut] + b"\n" + half[cut + 1 :] + b"\n")
    tail = EventTail(path)
    assert read(tail) == []
    assert "jsonl:1: this is no event of a run, nor is 1 further line;" in tail.skipped


@pytest.mark.parametrize(
    "wrong",
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
        run_start(described(np=0)),
        job_start("unknown"),
        {**job_start(), "job": "1"},
        judged("unknown"),
        judged("a", "splendid"),
        judged(expectations=[{"metric": "time_ms"}]),
        run_end("splendid"),
        run_end(errors=[1]),
        console_event("job_end", job=7, reason=None, status=0, strangers=0),
    ],
    ids=lambda event: event["event"],
)
def test_an_event_that_does_not_fit_its_run_is_left_out(path, wrong):
    whole = [{"job": 1, **event} if "seq" in event else event for event in whole_run()]
    events = [*whole[:6], {"job": 1, **wrong}, *whole[6:]]
    path.write_bytes(b"".join(json.dumps(event).encode() + b"\n" for event in events))
    recorded = RecordedEvents(path)
    assert list(recorded) == whole
    assert recorded.skipped.startswith(f"{path}:7: ")


def test_before_its_first_event_a_log_tells_nothing(path):
    path.write_bytes(encode(judged()) + encode(run_start()) + encode(judged()))
    recorded = RecordedEvents(path)
    assert [event["event"] for event in recorded] == ["run_start", "case_judged"]
    assert recorded.skipped.startswith(f"{path}:1: ")


def test_a_line_that_never_ends_is_not_kept(path, monkeypatch):
    monkeypatch.setattr(follow, "MAX_LINE_BYTES", 1000)
    path.write_bytes(lines(0) + b"x" * 5000 + b"\n" + lines(1))
    tail = EventTail(path)
    found = []
    while not tail.at_end:
        found += read(tail, 300)
        assert len(tail._incomplete) <= 1300
    assert found == [0, 1]


def test_a_log_that_is_a_pipe_is_refused_at_once(path):
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r": it is a pipe or a device, and no file$"):
        EventTail(path).read()


def test_a_log_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^cannot read .*: Is a directory$"):
        EventTail(tmp_path).read()


def test_a_recorded_log_is_read_to_its_end(path):
    assert list(RecordedEvents(path)) == []
    path.write_bytes(lines(*range(10_000)) + lines(10_000)[:-3])
    assert [event["number"] for event in RecordedEvents(path)] == list(range(10_000))
