import json

import pytest

from spbench.errors import UsageError
from spbench.record.runs.event_log import EventLog, encode
from spbench.record.runs.follow import EventTail, recorded_events


def event(number, **fields):
    return {"event": "log", "time": 1000.0 + number, "number": number, **fields}


def lines(*numbers):
    return b"".join(encode(event(number)) for number in numbers)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def read(tail, *limit):
    return [event["number"] for event in tail.read(*limit)]


def test_what_is_appended_is_read_once(path):
    tail, log = EventTail(path), EventLog(path)
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
    tail, found, looks = EventTail(path), [], 0
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
def test_a_line_that_is_no_event_is_named_with_its_place(path, wrong):
    path.write_bytes(lines(0, 1) + wrong + b"\n" + lines(2))
    tail = EventTail(path)
    assert read(tail) == [0, 1]
    assert not tail.at_end
    for _ in range(2):
        with pytest.raises(UsageError) as told:
            tail.read()
        assert str(told.value) == f"{path}:3: error: this is no event of a run"


def test_the_place_counts_all_lines_before(path):
    path.write_bytes(lines(*range(50)) + b"nonsense\n")
    found = []
    with pytest.raises(UsageError, match=r"jsonl:51: error"):
        found.extend(event["number"] for event in recorded_events(path))
    assert found == list(range(50))
    tail = EventTail(path)
    for _ in range(50):
        tail.read(len(lines(10)))
    with pytest.raises(UsageError, match=r"jsonl:51: error"):
        tail.read()


def test_two_lines_that_are_an_event_together_are_wrong(path):
    half = json.dumps(event(0)).encode()
    cut = half.index(b",")
    path.write_bytes(half[:cut] + b"\n" + half[cut + 1 :] + b"\n")
    with pytest.raises(UsageError, match=r"jsonl:1: error"):
        EventTail(path).read()


def test_a_log_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^cannot read .*: Is a directory$"):
        EventTail(tmp_path).read()


def test_a_recorded_log_is_read_to_its_end(path):
    assert list(recorded_events(path)) == []
    path.write_bytes(lines(*range(10_000)) + lines(10_000)[:-3])
    assert [event["number"] for event in recorded_events(path)] == list(range(10_000))
